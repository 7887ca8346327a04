//! The options of a fault run.

use crate::{Check, Subject};
use std::{
    collections::BTreeSet,
    env,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How a fault run goes. The [`default`](Default::default) is right for a store whose requests take a few milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Determines the schedule of faults.
    pub seed: u64,
    /// How long it goes on. A round that has begun is finished.
    pub length: Duration,
    /// How long a round takes: then all is healed, all clients end, and the judge looks.
    pub round: Duration,
    /// The lease of every lock. Faults are measured in it. A store of sessions has its
    /// [own](crate::Subject::session_timeout).
    pub lease: Duration,
    /// How many locks there are.
    pub names: usize,
    /// How many clients there are in this process, each with two workers.
    pub clients: usize,
    /// How many client processes there are, each with two workers, where the store can be reached from others.
    pub processes: usize,
    /// The program that every client is, instead of tenure's own: its command, in which `{url}` stands for the
    /// [store's](crate::Subject::url). It gets [`clients`](Self::clients) places as well as
    /// [`processes`](Self::processes).
    pub client: Option<String>,
    /// The program of another version of this suite, which is every other process: two versions share the store.
    pub beside: Option<PathBuf>,
    /// How late a client may notice something: [`Judge::allowing`](crate::judge::Judge::allowing).
    pub allowance: Duration,
    /// Which faults of a round do not come, by their places [in order](super::Schedule::in_order).
    pub left_out: BTreeSet<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            length: Duration::from_mins(1),
            round: Duration::from_secs(15),
            lease: Duration::from_secs(1),
            names: 2,
            clients: 4,
            processes: 2,
            client: None,
            beside: None,
            allowance: Duration::from_secs(3),
            left_out: BTreeSet::new(),
        }
    }
}

impl Options {
    /// The default, with this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The default, with `TENURE_SEED` or, without it, another seed each day (UTC).
    ///
    /// # Errors
    ///
    /// If `TENURE_SEED` is no number.
    pub fn of_the_day() -> Check<Self> {
        const DAY: u64 = 24 * 60 * 60;
        let seed = match env::var("TENURE_SEED") {
            Ok(seed) => seed.parse()?,
            Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / DAY,
        };
        Ok(Self::seeded(seed))
    }

    /// One round of eight seconds with a lease of half a second, for a test beside others.
    #[must_use]
    pub fn short(self) -> Self {
        let (round, lease) = (Duration::from_secs(8), Duration::from_millis(500));
        Self { round, lease, length: Duration::ZERO, ..self }
    }

    /// For this long.
    #[must_use]
    pub fn lasting(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// As it goes on this store: the lease is that of its sessions where it has [one](Subject::session_timeout), and a
    /// round takes 15 leases or more.
    #[must_use]
    pub fn on(self, subject: &dyn Subject) -> Self {
        match subject.session_timeout() {
            Some(lease) => Self { lease, round: self.round.max(lease * 15), ..self },
            None => self,
        }
    }
}

/// How many workers each client has.
pub(super) const WORKERS: usize = 2;
/// To how many successors in a row a client hands a grant on, if it does: few, so that its workers get that far.
pub(super) const SUCCESSORS: u32 = 2;
/// In the names of the other version's clients.
pub(super) const BESIDE: &str = "-beside";
