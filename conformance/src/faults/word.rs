//! The word of a guard: whether it is held.

use crate::judge::{Event, Recorder, Stamp, What};
use std::time::Duration;
use tenure_core::{Hold, Moment};

/// Closer than this it is the same instant, read twice.
pub(super) const SAME: Duration = Duration::from_millis(2);

/// A guard's word that it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// When it was about to be asked.
    asked: Stamp,
    /// Until when it believes in itself.
    pub(super) until: Stamp,
}

impl Word {
    /// Asks a guard; `None` if it does not say that it holds.
    ///
    /// The time is from before it is asked, and its deadline is reckoned from the same reading of the clock. So no
    /// pause of this thread makes a guard that was right look late, or one that was late look right.
    pub(super) fn of(hold: &Hold) -> Option<Self> {
        let (asked, now) = (Stamp::now(), Moment::now());
        if !hold.is_held() {
            return None;
        }
        let until = hold.deadline()?;
        Some(Self { asked, until: asked + until.since(now) - now.since(until) })
    }

    /// Whether its own deadline had passed when it was asked.
    pub(super) fn is_late(&self) -> bool {
        self.asked.since(self.until) > SAME
    }

    pub(super) fn note(self, recorder: &Recorder, lane: &str, hold: &Hold) {
        let (claim, token) = (hold.claim().to_string(), hold.token().get());
        let what = What::Holds { claim, token, until: self.until };
        recorder.add(Event { at: self.asked, client: lane.to_owned(), what });
    }
}
