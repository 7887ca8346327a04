//! The server's data: locks, the sessions of its clients, and texts.

use super::texts::Texts;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tenure_core::{
    Backend, ClaimId, Grant, LossCause, Memory, Mode, Moment, Release, Renewal, StoreError, record::StoreTime,
};

/// The server's data, and its clock.
#[derive(Debug)]
pub(super) struct Data {
    /// How fast the clock runs: almost as far from the clients' as clause L3 allows for.
    rate: f64,
    /// A store for each namespace.
    memories: Mutex<BTreeMap<String, Memory>>,
    /// How far the clock may be behind the latest time that it has shown. `None` once tokens were forgotten: from then on
    /// it is not set back, because clause T2 rests on that.
    behind: Mutex<Option<Duration>>,
    pub(super) sessions: Sessions,
    pub(super) texts: Texts,
    /// The time of the clock that dates texts, and the moment of that time. None until it is read.
    clock: Mutex<Option<(StoreTime, Moment)>>,
}

/// The clock of a store starts at the same time in every run.
const START: Duration = Duration::from_secs(1_000_000_000);

impl Data {
    pub(super) fn new(seed: Option<u64>) -> Self {
        let drift = seed.map_or(0.0, |seed| fastrand::Rng::with_seed(seed).f64() - 0.5);
        let (memories, behind, sessions) =
            (Mutex::default(), Mutex::new(Some(Duration::ZERO)), Sessions::default());
        let (texts, clock) = (Texts::default(), Mutex::default());
        Self { rate: 1.0 + drift * 0.019, memories, behind, sessions, texts, clock }
    }

    pub(super) fn memory(&self, namespace: &str) -> Memory {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = || Memory::with_clock(SystemTime::UNIX_EPOCH + START, self.rate);
        memories.entry(namespace.to_owned()).or_insert_with(memory).clone()
    }

    /// The time by which texts are dated.
    pub(super) fn now(&self) -> StoreTime {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, then) = *clock.get_or_insert_with(|| (StoreTime::from_micros(0) + START, Moment::now()));
        time + Moment::now().since(then).mul_f64(self.rate)
    }

    /// A server starts without its data when its clock is right again: tokens follow the clock then (clause T2).
    pub(super) fn wipe(&self) {
        self.sessions.forget();
        self.texts.wipe();
        self.memories.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(Memory::wipe);
        let behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.set_clock(true, behind.unwrap_or_default());
    }

    /// Sets the clock ahead or, unless tokens were forgotten, back.
    pub(super) fn set_clock(&self, ahead: bool, by: Duration) {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        *behind = match *behind {
            None if !ahead => return,
            behind => behind.map(|behind| if ahead { behind.saturating_sub(by) } else { behind + by }),
        };
        for memory in self.memories.lock().unwrap_or_else(PoisonError::into_inner).values() {
            memory.set_clock(|time| if ahead { time + by } else { time - by });
        }
        let now = self.now();
        let set = if ahead {
            now + by
        } else {
            StoreTime::from_micros(0) + now.since(StoreTime::from_micros(0) + by)
        };
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some((set, Moment::now()));
    }
}

/// How long the server keeps a session of which it hears nothing.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);

/// The sessions that the server keeps.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    open: BTreeMap<u64, Open>,
}

/// An open session. Its grants have leases in memory, which are renewed whenever the server hears of it.
#[derive(Debug)]
struct Open {
    heard: Moment,
    memory: Memory,
    grants: Vec<Grant>,
    /// The claims that were withdrawn or released. A release has its request and its answer, for a copy that arrives
    /// later. A late acquisition of such a claim is refused, because no lease would end it.
    removed: HashMap<ClaimId, Option<(ClaimId, Release)>>,
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self, memory: Memory) -> u64 {
        let mut table = self.table();
        table.last += 1;
        let (number, heard) = (table.last, Moment::now());
        let (grants, removed) = (Vec::new(), HashMap::new());
        table.open.insert(number, Open { heard, memory, grants, removed });
        number
    }

    /// Hears of a session, whose grants then stand for another timeout. Returns those that were lost; `None` if the
    /// session has ended.
    pub(super) async fn hear(&self, number: u64) -> Result<Option<Vec<(ClaimId, LossCause)>>, StoreError> {
        let (memory, grants) = {
            let mut table = self.table();
            let open = table.open.get_mut(&number).filter(|open| !(open.heard + TIMEOUT).has_passed());
            let Some(open) = open else {
                table.open.remove(&number);
                return Ok(None);
            };
            open.heard = Moment::now();
            (open.memory.clone(), open.grants.clone())
        };
        let renewed = memory.renew(&grants).await?;
        let lost = |(grant, renewal): (Grant, Renewal)| match renewal {
            Renewal::Lost(cause) => Some((grant.claim, cause)),
            Renewal::Renewed | Renewal::Unanswered => None,
        };
        Ok(Some(grants.into_iter().zip(renewed).filter_map(lost).collect()))
    }

    pub(super) fn is_removed(&self, number: u64, claim: ClaimId) -> bool {
        self.table().open.get(&number).is_some_and(|open| open.removed.contains_key(&claim))
    }

    /// Notes a grant of this session.
    pub(super) fn granted(&self, number: u64, grant: &Grant) {
        if let Some(open) = self.table().open.get_mut(&number)
            // A late copy of the request knows nothing of a conversion since.
            && open.grants.iter().all(|other| other.claim != grant.claim)
        {
            open.grants.push(grant.clone());
        }
    }

    /// Removes a claim from all sessions, because it may be in an earlier one of its client.
    pub(super) fn remove(&self, claim: ClaimId, released: Option<(ClaimId, Release)>) {
        for open in self.table().open.values_mut() {
            open.grants.retain(|grant| grant.claim != claim);
            open.removed.insert(claim, released);
        }
    }

    /// The answer to this release of this claim, if it has been carried out.
    pub(super) fn released(&self, claim: ClaimId, request: ClaimId) -> Option<Release> {
        let table = self.table();
        let answered = table.open.values().find_map(|open| *open.removed.get(&claim)?);
        answered.filter(|(by, _)| *by == request).map(|(_, answer)| answer)
    }

    pub(super) fn convert(&self, claim: ClaimId, to: Mode) {
        let mut table = self.table();
        let grants = table.open.values_mut().flat_map(|open| &mut open.grants);
        grants.filter(|grant| grant.claim == claim).for_each(|grant| grant.mode = to);
    }

    /// Ends a session, and what was granted in it.
    pub(super) async fn end(&self, number: u64) {
        let ended = self.table().open.remove(&number);
        let Some(Open { memory, grants, .. }) = ended else { return };
        for grant in grants {
            // Memory fails no request.
            let _ = memory.release(&grant).await;
        }
    }

    pub(super) async fn end_all(&self) {
        let all: Vec<_> = self.table().open.keys().copied().collect();
        for number in all {
            self.end(number).await;
        }
    }

    /// Forgets all sessions, as a server does that starts without its data.
    fn forget(&self) {
        self.table().open.clear();
    }
}
