//! When rows that nobody uses are deleted.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tenure_core::Moment;

/// For how long a row must have been free, or its lease over.
pub(crate) const IDLE: Duration = Duration::from_hours(24);
/// How often a table is swept, whoever does it.
pub(crate) const EVERY: Duration = Duration::from_hours(1);
/// How many rows one statement deletes.
pub(crate) const BATCH: u16 = 500;

/// When this client looks next whether it is its turn to sweep.
pub(crate) struct Sweeping(Mutex<Moment>);

impl Sweeping {
    /// `ago` is how long ago the table was swept, by anybody.
    pub(crate) fn new(ago: Option<Duration>) -> Self {
        let left = ago.map_or(Duration::ZERO, |ago| EVERY.saturating_sub(ago));
        Self(Mutex::new(Moment::now() + left))
    }

    /// Whether to look now. Says so once an hour.
    pub(crate) fn is_due(&self) -> bool {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = next.has_passed();
        if due {
            *next = Moment::now() + EVERY;
        }
        due
    }
}
