//! The order in which the waiters for one name get the turn.

use crate::{
    contract::Moment,
    policy::succession::{Estate, Terms},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::Notify;

/// How long a waiter may leave the turn that it was offered. A task that takes longer is not polled, perhaps never again.
pub(super) const PICK_UP: Duration = Duration::from_secs(2);

/// A turn that passes on, with the grant that may come with it.
type Passed = Option<Box<Estate>>;

#[derive(Default)]
pub(super) struct Order {
    given: Given,
    /// By number, in order of arrival.
    waiting: BTreeMap<u64, Waiter>,
    last_number: u64,
}

/// The state of the turn.
#[derive(Default)]
enum Given {
    /// No task, and no waiter would come for it.
    #[default]
    Free,
    /// The waiter with this number, once it comes for it.
    Offered {
        number: u64,
        since: Moment,
        estate: Passed,
    },
    Taken,
}

struct Waiter {
    /// Those on which it may inherit a grant, if it may at all.
    terms: Option<Terms>,
    wake: Arc<Notify>,
    /// Whether it has left a turn. It keeps its place, and is passed over until it is polled again.
    sleeps: bool,
}

impl Order {
    /// Takes the turn if no task has it and no waiter would come for it.
    pub(super) fn take(&mut self) -> bool {
        let is_free = matches!(self.given, Given::Free);
        if is_free {
            self.given = Given::Taken;
        }
        is_free
    }

    /// Lets another wait. Returns its number, and how it is told that it is offered the turn.
    pub(super) fn join(&mut self, terms: Option<Terms>) -> (u64, Arc<Notify>) {
        let wake = Arc::<Notify>::default();
        self.last_number += 1;
        self.waiting.insert(self.last_number, Waiter { terms, wake: Arc::clone(&wake), sleeps: false });
        (self.last_number, wake)
    }

    /// The waiter comes for its turn, and has it if the result is `Some`.
    pub(super) fn pick_up(&mut self, by: u64) -> Option<Passed> {
        let estate = match &mut self.given {
            Given::Free => None,
            Given::Offered { number, estate, .. } if *number == by => estate.take(),
            Given::Offered { .. } | Given::Taken => {
                if let Some(waiter) = self.waiting.get_mut(&by) {
                    waiter.sleeps = false;
                }
                return None;
            }
        };
        self.given = Given::Taken;
        self.waiting.remove(&by);
        Some(estate)
    }

    /// Offers the turn to the first waiter that is polled. Returns the waiter's notifier, and the grant if the
    /// waiter may not inherit it.
    pub(super) fn offer(&mut self, estate: Passed) -> (Option<Arc<Notify>>, Passed) {
        let Some((number, next)) = self.first() else {
            self.given = Given::Free;
            return (None, estate);
        };
        let suits = estate.as_ref().is_some_and(|estate| estate.suits(next.terms.as_ref()));
        let (inherited, released) = if suits { (estate, None) } else { (None, estate) };
        let wake = Arc::clone(&next.wake);
        self.given = Given::Offered { number, since: Moment::now(), estate: inherited };
        (Some(wake), released)
    }

    /// Takes back a turn that was left for too long; `None` if there is none.
    pub(super) fn take_back(&mut self) -> Option<Passed> {
        let Given::Offered { number, since, estate } = &mut self.given else { return None };
        if Moment::now().since(*since) < PICK_UP {
            return None;
        }
        let estate = estate.take();
        if let Some(waiter) = self.waiting.get_mut(number) {
            waiter.sleeps = true;
        }
        self.given = Given::Taken;
        Some(estate)
    }

    /// The waiter goes. Returns the turn that it was offered.
    pub(super) fn leave(&mut self, gone: u64) -> Option<Passed> {
        self.waiting.remove(&gone);
        match &mut self.given {
            Given::Offered { number, estate, .. } if *number == gone => {
                let estate = estate.take();
                self.given = Given::Taken;
                Some(estate)
            }
            Given::Free | Given::Offered { .. } | Given::Taken => None,
        }
    }

    /// Whether a waiter that is polled waits for the turn.
    pub(super) fn is_awaited(&self) -> bool {
        self.first().is_some()
    }

    /// The terms of the waiter that has the turn next.
    pub(super) fn next_terms(&self) -> Option<&Terms> {
        self.first()?.1.terms.as_ref()
    }

    fn first(&self) -> Option<(u64, &Waiter)> {
        let (number, waiter) = self.waiting.iter().find(|(_, waiter)| !waiter.sleeps)?;
        Some((*number, waiter))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
