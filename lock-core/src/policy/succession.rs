//! A grant on its way from one hold to the next in the same process.

use crate::contract::{Grant, HolderInfo, Moment, Standing, lease};
use std::{sync::Arc, time::Duration};

/// The terms of an acquisition that takes part in succession: only another with equal terms may inherit its grant. Both
/// are exclusive, are renewed, and may be held for any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// The holder's description for people, in the store.
    pub(crate) holder: Arc<HolderInfo>,
    /// How many tokens the store reserves with the grant.
    pub(crate) successors: u32,
}

/// A grant that one hold has left to the next. Unless that one [inherits](Self::inherited) it, it is released in the
/// background when it is dropped.
pub(super) struct Estate {
    grant: Grant,
    terms: Terms,
    release: Option<Box<dyn FnOnce() + Send>>,
}

impl Estate {
    /// `release` releases the grant in the background.
    pub(super) fn new(grant: Grant, terms: Terms, release: impl FnOnce() + Send + 'static) -> Self {
        Self { grant, terms, release: Some(Box::new(release)) }
    }

    /// Whether an acquisition on these terms may inherit it.
    pub(super) fn suits(&self, terms: Option<&Terms>) -> bool {
        terms == Some(&self.terms)
    }

    /// The grant, unless it has been on its way for too long.
    pub(super) fn grant(&self) -> Option<&Grant> {
        is_timely(&self.grant).then_some(&self.grant)
    }

    /// It has its next holder, which will release it.
    pub(super) fn inherited(mut self) {
        self.release = None;
    }
}

impl Drop for Estate {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

/// The grant for the next hold, if it may have one more.
///
/// No renewal may have been sent yet, so `grant` still says until when the lease stands at least (clause L3).
pub(super) fn next(grant: &Grant) -> Option<Grant> {
    grant.for_successor().filter(is_timely)
}

/// Whether less than a third of the lease has passed since the request for the grant. Holds of one process that follow
/// each other keep all others out for no longer than that.
fn is_timely(grant: &Grant) -> bool {
    match &grant.standing {
        Standing::Lease { sent, stands } if *stands >= grant.lease => {
            Moment::now() < *sent + lease::renewal_period(grant.lease)
        }
        // In a session, or provisional.
        Standing::Lease { .. } | Standing::Session(_) => false,
    }
}

#[cfg(test)]
mod tests;
