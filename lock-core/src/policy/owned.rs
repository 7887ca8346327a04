//! Re-entry: the holds that their owners may re-enter.

use super::holding::{Barred, Holding};
use crate::contract::{Mode, Name, Owner};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The holds of one client that have an owner, as long as any of their guards is alive, even if they were lost.
#[derive(Default)]
pub(super) struct Owned(Mutex<HashMap<Name, Vec<Arc<Holding>>>>);

impl Owned {
    fn holds(&self) -> MutexGuard<'_, HashMap<Name, Vec<Arc<Holding>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the owner of `hold` re-enter it.
    pub(super) fn add(&self, hold: &Arc<Holding>) {
        self.holds().entry(hold.grant.name.clone()).or_default().push(Arc::clone(hold));
    }

    /// Forgets `hold`, whose last guard is gone.
    pub(super) fn remove(&self, hold: &Holding) {
        if let Entry::Occupied(mut entry) = self.holds().entry(hold.grant.name.clone()) {
            entry.get_mut().retain(|other| other.id != hold.id);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// Re-enters the hold of `owner`: `None` if it has none.
    pub(super) fn enter(
        &self,
        name: &Name,
        owner: &Owner,
        wanted: Mode,
    ) -> Option<Result<Arc<Holding>, Barred>> {
        let holds = self.holds();
        let mut theirs = holds.get(name)?.iter().filter(|hold| hold.owner.as_ref() == Some(owner));
        theirs.find_map(|hold| hold.enter_again(wanted).map(|entered| entered.map(|()| Arc::clone(hold))))
    }
}
