//! A record store with one flaw: texts in memory, in virtual time, behind a wire.

mod requests;

use crate::wire::Wire;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_conformance::{AnyRecordStore, BoxError, Subject, async_trait, saboteur::Saboteur};
use tenure_core::{
    Backend, StoreError,
    record::{Records, StoreTime, Stored},
};
use tokio::{sync::watch, time::Instant};

/// The flaw of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFlaw {
    /// Nothing.
    None,
    ReadsFromCache,
    KeepsEmptyTexts,
    SwapsAnyVersion,
    RemovesAnyVersion,
    CreatesOverText,
    WritesOverAbsence,
    SaysTrueAndWritesNothing,
    SaysFalseAndWrites,
    LooksThenSwaps,
    IgnoresCase,
    TrimsSpaces,
    CutsKeys,
    CutsTexts,
    ComparesTextsWithoutCase,
    CountsSeconds,
    CountsMillis,
    StandsStill,
    TellsClientsClock,
    TellsTimesOfMembers,
    ListsWithAnotherClock,
    ReturnsAtOnce,
    WatchesFromNow,
    WatchesFromBeginning,
    WatchesNothing,
    WatchesWritesOnly,
    WaitsForEver,
    ListsFirstPage,
    ListsPagesOfSeveralRevisions,
    ListsLastOfPageTwice,
    ListsByPattern,
    ListsWithoutCase,
    ListsVersionsOfTheList,
    /// Waits for an answer for ever.
    HasNoTimeout(Request),
    /// Answers false, an absent key or an empty list instead of an error.
    AnswersErrors(Request),
    /// Says that asking again is no use.
    FailsForGood(Request),
    SendsSwapsAgain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Read,
    Swap,
    List,
}

/// How long a request, and then its answer, is on its way.
const HOP: Duration = Duration::from_millis(1);
const PAGE: usize = 500;

/// A store under test with this flaw.
pub(crate) struct BrokenRecords {
    flaw: RecordFlaw,
    server: Arc<Server>,
    clients: AtomicUsize,
}

/// Shared by all clients.
struct Server {
    entries: Mutex<Entries>,
    /// The revision of the last change.
    revision: watch::Sender<u64>,
    /// The keys that were ever written.
    history: Mutex<HashSet<String>>,
    began: Instant,
    wire: Arc<Wire>,
}

/// Each text and its revision.
type Entries = BTreeMap<String, (String, u64)>;

impl BrokenRecords {
    pub(crate) fn with(flaw: RecordFlaw) -> Self {
        let server = Server {
            entries: Mutex::default(),
            revision: watch::Sender::new(0),
            history: Mutex::default(),
            began: Instant::now(),
            wire: Arc::new(Wire::new()),
        };
        Self { flaw, server: Arc::new(server), clients: AtomicUsize::new(0) }
    }

    fn client(&self) -> Client {
        let number = u32::try_from(self.clients.fetch_add(1, Ordering::Relaxed)).expect("a small number");
        Client { flaw: self.flaw, server: Arc::clone(&self.server), number, cache: Mutex::default() }
    }
}

#[async_trait]
impl Subject for BrokenRecords {
    fn name(&self) -> &'static str {
        "records"
    }

    fn simulated(&self) -> Option<Arc<dyn Subject>> {
        Some(Arc::new(Self::with(self.flaw)))
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(Records::new(self.client())))
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::clone(&self.server.wire) as Arc<dyn Saboteur>)
    }

    async fn records(&self) -> Result<Option<AnyRecordStore>, BoxError> {
        Ok(Some(AnyRecordStore::new(self.client())))
    }
}

struct Client {
    flaw: RecordFlaw,
    server: Arc<Server>,
    number: u32,
    cache: Mutex<HashMap<String, (Instant, Stored<u64>)>>,
}

impl Client {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.server.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key under which the store keeps it.
    fn key(&self, key: &str) -> String {
        match self.flaw {
            RecordFlaw::IgnoresCase => key.to_lowercase(),
            RecordFlaw::TrimsSpaces => key.trim_end().to_owned(),
            RecordFlaw::CutsKeys => key.chars().take(255).collect(),
            _ => key.to_owned(),
        }
    }

    fn now(&self) -> StoreTime {
        let since = self.server.began.elapsed();
        let since = match self.flaw {
            RecordFlaw::CountsSeconds => Duration::from_secs(since.as_secs()),
            RecordFlaw::CountsMillis => since / 1000,
            RecordFlaw::StandsStill => Duration::ZERO,
            // Clients' clocks are a second apart, as if set by hand.
            RecordFlaw::TellsClientsClock => since + Duration::from_secs(1) * self.number,
            // Servers take turns to answer, and their clocks nearly agree.
            RecordFlaw::TellsTimesOfMembers => since + HOP * 5 * (since.subsec_millis() / 2 % 3),
            _ => since,
        };
        StoreTime::from_micros(1_700_000_000_000_000) + since
    }

    /// Looks up the key.
    fn look(&self, key: &str) -> Stored<u64> {
        let found = self.entries().get(&self.key(key)).cloned();
        let (text, version) = found.map_or((None, 0), |(text, revision)| (Some(text), revision));
        Stored { text, version, now: self.now() }
    }

    fn write(&self, key: &str, to: Option<&str>) {
        let mut entries = self.entries();
        let revision = *self.server.revision.borrow() + 1;
        self.server.history.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        match to {
            Some(text) => {
                let kept = if self.flaw == RecordFlaw::CutsTexts { 4_000 } else { usize::MAX };
                entries.insert(self.key(key), (text.chars().take(kept).collect(), revision));
            }
            None if self.flaw == RecordFlaw::KeepsEmptyTexts => {
                entries.insert(self.key(key), (String::new(), revision));
            }
            None => _ = entries.remove(&self.key(key)),
        }
        drop(entries);
        self.server.revision.send_replace(revision);
    }

    /// Carries a request to the server and its answer back. With a flaw, it may answer `otherwise` instead of an error.
    async fn carry<T>(
        &self,
        request: Request,
        answer: impl Future<Output = T>,
        otherwise: T,
    ) -> Result<T, StoreError> {
        let trip = async {
            tokio::time::sleep(HOP).await;
            let answer = answer.await;
            tokio::time::sleep(HOP).await;
            answer
        };
        let answered = if self.flaw == RecordFlaw::HasNoTimeout(request) {
            self.server.wire.carry_without_timeout(trip).await
        } else {
            self.server.wire.carry(trip).await
        };
        match answered {
            Err(_) if self.flaw == RecordFlaw::AnswersErrors(request) => Ok(otherwise),
            Err(error) if self.flaw == RecordFlaw::FailsForGood(request) => Err(StoreError::failed(error)),
            answered => answered,
        }
    }
}
