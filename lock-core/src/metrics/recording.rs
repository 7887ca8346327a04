//! Measurements of the policy's waits, holds and renewals.

use super::list::{
    ACQUISITIONS, CAUSES, ENDINGS, Ending, HELD, HOLD, Kind, LOSSES, METRICS, MODES, MOST_GROUPS, Metric,
    NO_GROUP, OTHER_GROUPS, RENEWAL_LAG, RENEWALS, RENEWED, Renewed, WAIT, WAITING, place,
};
use crate::contract::{LossCause, Mode, Moment, Name};
use ::metrics::{Counter, Gauge, Histogram, Label, Unit};
use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// The meters of one group of names, by mode.
type Modes = [OnceLock<Arc<Group>>; MODES.len()];

/// The measurements of one client.
pub(crate) struct Meters {
    store: Arc<str>,
    /// Each with its meters by mode, made when they are first needed. Their number is limited.
    groups: RwLock<HashMap<Box<str>, Modes>>,
    is_grouped: AtomicBool,
    renewal_lag: Histogram,
}

/// The meters of one group of names, in one mode.
///
/// They are registered together, with every value of their labels: a counter that appears with its first event shows
/// no increase to an alert.
struct Group {
    acquisitions: [Counter; ENDINGS.len()],
    wait: Histogram,
    waiting: Gauge,
    held: Gauge,
    hold: Histogram,
    losses: [Counter; CAUSES.len()],
    renewals: [Counter; RENEWALS.len()],
}

impl Meters {
    pub(crate) fn new(store: &Arc<str>) -> Self {
        for metric in METRICS {
            match metric.kind {
                Kind::Counter => ::metrics::describe_counter!(metric.name, metric.help),
                Kind::Gauge => ::metrics::describe_gauge!(metric.name, metric.help),
                Kind::Histogram => ::metrics::describe_histogram!(metric.name, Unit::Seconds, metric.help),
            }
        }
        Self {
            groups: RwLock::default(),
            is_grouped: AtomicBool::new(true),
            renewal_lag: histogram(&RENEWAL_LAG, &[store_label(store)]),
            store: Arc::clone(store),
        }
    }

    /// Puts all names in one group from now on.
    pub(crate) fn without_groups(&self) {
        self.is_grouped.store(false, Ordering::Relaxed);
    }

    /// An acquisition begins.
    pub(crate) fn waiting(&self, name: &Name, mode: Mode) -> Waiting {
        let group = self.group(name, mode);
        group.waiting.increment(1);
        Waiting { group, began: Instant::now(), ending: Some(Ending::Cancelled) }
    }

    /// A hold begins.
    pub(crate) fn held(&self, name: &Name, mode: Mode) -> Held {
        let group = self.group(name, mode);
        group.held.increment(1);
        Held { group, began: Instant::now(), ended: OnceLock::new(), is_over: AtomicBool::new(false) }
    }

    /// A renewal is sent that was due then.
    pub(crate) fn renewal_sent(&self, due: Option<Moment>) {
        if let Some(due) = due {
            self.renewal_lag.record(Moment::now().since(due));
        }
    }

    fn group(&self, name: &Name, mode: Mode) -> Arc<Group> {
        let of_name = name.split_once('/').map_or("", |(prefix, _)| prefix);
        let is_grouped = self.is_grouped.load(Ordering::Relaxed) && !of_name.is_empty();
        let group = if is_grouped { of_name } else { NO_GROUP };
        let mode = match mode {
            Mode::Exclusive => 0,
            Mode::Shared => 1,
            Mode::Permit { .. } => 2,
        };
        self.known(group, mode).unwrap_or_else(|| self.first(group, mode))
    }

    fn known(&self, group: &str, mode: usize) -> Option<Arc<Group>> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.get(counted_under(&groups, group))?[mode].get().map(Arc::clone)
    }

    /// For a group that was not [`known`](Self::known); others may have come since then.
    fn first(&self, group: &str, mode: usize) -> Arc<Group> {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let group = counted_under(&groups, group);
        let modes = groups.entry(group.into()).or_default();
        Arc::clone(modes[mode].get_or_init(|| Arc::new(Group::new(&self.store, MODES[mode], group))))
    }
}

/// The group itself, or the one for all others if there are enough already.
fn counted_under<'a>(groups: &HashMap<Box<str>, Modes>, group: &'a str) -> &'a str {
    if group == NO_GROUP || groups.contains_key(group) {
        return group;
    }
    let others = [NO_GROUP, OTHER_GROUPS].iter().filter(|group| groups.contains_key(**group)).count();
    if groups.len() - others < MOST_GROUPS { group } else { OTHER_GROUPS }
}

impl Group {
    fn new(store: &str, mode: &'static str, group: &str) -> Self {
        let labels = [store_label(store), Label::new("mode", mode), Label::new("group", group.to_owned())];
        Self {
            acquisitions: ENDINGS.map(|ending| counter(&ACQUISITIONS, &labels, "outcome", ending)),
            wait: histogram(&WAIT, &labels),
            waiting: ::metrics::gauge!(WAITING.name, labels.iter()),
            held: ::metrics::gauge!(HELD.name, labels.iter()),
            hold: histogram(&HOLD, &labels),
            losses: CAUSES.map(|cause| counter(&LOSSES, &labels, "cause", cause)),
            renewals: RENEWALS.map(|outcome| counter(&RENEWED, &labels, "outcome", outcome)),
        }
    }
}

/// An acquisition under way. Dropping it counts it as cancelled.
pub(crate) struct Waiting {
    group: Arc<Group>,
    began: Instant,
    ending: Option<Ending>,
}

impl Waiting {
    pub(crate) fn ended(mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    /// It was over as soon as it began, after a wait since then.
    pub(crate) fn timed_out_since(mut self, since: Instant) {
        self.began = since;
        self.ended(Ending::Timeout);
    }

    /// It counts if it succeeds, and otherwise as nothing, because others of its kind follow.
    pub(crate) fn only_if_acquired(&mut self) {
        self.ending = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.group.waiting.decrement(1);
        let Some(ending) = self.ending else { return };
        self.group.acquisitions[ending as usize].increment(1);
        if ending != Ending::Busy {
            self.group.wait.record(self.began.elapsed());
        }
    }
}

/// A grant that is held.
pub(crate) struct Held {
    group: Arc<Group>,
    began: Instant,
    /// How long it lasted, and why it was lost, if it was.
    ended: OnceLock<(Duration, Option<LossCause>)>,
    is_over: AtomicBool,
}

impl Held {
    /// The hold ends now, with a loss or without. Only the first end counts. [`over`](Self::over) records that, which may
    /// come later.
    pub(crate) fn ends(&self, loss: Option<LossCause>) {
        self.ended.get_or_init(|| (self.began.elapsed(), loss));
    }

    /// Records the end of the hold.
    pub(crate) fn over(&self) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let (lasted, loss) = *self.ended.get_or_init(|| (self.began.elapsed(), None));
        self.group.held.decrement(1);
        self.group.hold.record(lasted);
        if let Some(cause) = loss {
            self.group.losses[place(cause)].increment(1);
        }
    }

    /// It was over already, and then the store said that it had been lost before.
    pub(crate) fn lost_after_all(&self, cause: LossCause) {
        self.group.losses[place(cause)].increment(1);
    }

    pub(crate) fn renewed(&self, outcome: Renewed) {
        self.group.renewals[outcome as usize].increment(1);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.over();
    }
}

pub(super) fn store_label(store: &str) -> Label {
    Label::new("store", store.to_owned())
}

pub(super) fn counter(metric: &Metric, labels: &[Label], last: &'static str, value: &'static str) -> Counter {
    let labels: Vec<Label> = labels.iter().cloned().chain([Label::from_static_parts(last, value)]).collect();
    ::metrics::counter!(metric.name, labels)
}

pub(super) fn histogram(metric: &Metric, labels: &[Label]) -> Histogram {
    ::metrics::histogram!(metric.name, labels.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_limit_holds_if_several_arrive_at_once() {
        let meters = Meters::new(&"a store".into());
        let earlier = (1..MOST_GROUPS).map(|number| (format!("earlier-{number}").into(), Modes::default()));
        meters.groups.write().unwrap().extend(earlier);
        // There is room for one more: so several threads find, and then all of them come.
        for group in ["a", "b", "c"] {
            meters.first(group, 0);
        }
        meters.first(NO_GROUP, 0);
        let groups = meters.groups.into_inner().unwrap();
        let is_there = ["a", "b", "c", OTHER_GROUPS, NO_GROUP].map(|group| groups.contains_key(group));
        assert_eq!(is_there, [true, false, false, true, true]);
        assert_eq!(groups.len(), MOST_GROUPS + 2);
    }
}
