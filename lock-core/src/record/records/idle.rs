//! Names to forget.

use crate::contract::{Moment, Name};
use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// How long a name is kept after its last use: far longer than any request is on its way, so that no request meets a
/// name that was removed and made again.
const KEPT: Duration = Duration::from_mins(1);

/// The names that this client left idle: since when, and which edition of its record that was.
#[derive(Debug)]
pub(super) struct IdleNames(Mutex<Names>);

#[derive(Debug)]
struct Names {
    names: HashMap<Name, (Moment, u64)>,
    looked: Moment,
}

impl Default for IdleNames {
    fn default() -> Self {
        Self(Mutex::new(Names { names: HashMap::new(), looked: Moment::now() }))
    }
}

impl IdleNames {
    /// Notes that the name is idle. Returns and forgets the names whose time has come.
    pub(super) fn note(&self, name: &Name, edition: u64) -> Vec<(Name, u64)> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::now();
        names.names.insert(name.clone(), (now, edition));
        if now.since(names.looked) < KEPT / 4 {
            return Vec::new();
        }
        names.looked = now;
        let (due, kept) = mem::take(&mut names.names)
            .into_iter()
            .partition::<HashMap<_, _>, _>(|(_, (since, _))| KEPT <= now.since(*since));
        names.names = kept;
        due.into_iter().map(|(name, (_, edition))| (name, edition)).collect()
    }
}
