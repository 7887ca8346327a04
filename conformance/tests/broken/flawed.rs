//! A store with one flaw: the one in memory, and what is done to it on the way in and out.

mod requests;

use crate::wire::Wire;
use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_conformance::{BoxError, Subject, async_trait, saboteur::Saboteur};
use tenure_core::{
    Attempt, Backend, Claim, ClaimId, Grant, Holder, HolderInfo, Memory, Mode, Moment, Name, Standing,
    StoreError, Token,
};
use tokio::sync::Notify;

/// The store's defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    GrantsEverybody,
    RepeatsTokens,
    CountsFromOne,
    ReservesNothing,
    RenewsAnything,
    RenewsExpired,
    ForgetsRenewals,
    RenewsAnyMode,
    AnswersBackwards,
    WithdrawsNothing,
    WithdrawsAnyClaim,
    ReleasesAnyClaim,
    ReleasesSilently,
    KnowsNoClaim,
    KeepsForever,
    HalvesLeases,
    EndsLeasesEarly,
    IgnoresCase,
    TrimsSpaces,
    CutsNames,
    NormalizesPaths,
    SharesNamespaces,
    LosesWakeups,
    SleepsThroughLeases,
    ClosesForOthers,
    ServesLastFirst,
    PrefersWhoWasHere,
    ListsByPattern,
    TellsOfTheDead,
    ForcesNothing,
    ForgetsForcedClaims,
    ForgetsLabels,
    ShowsWaitersBackwards,
    ShowsHoldersAsWaiters,
    WritesBesideReaders,
    UpgradesAnybody,
    DowngradesByReleasing,
    CountsHoldersForPermits,
    AgreesOnAnyNumber,
    CountsPartiesTwice,
    CountsAnyNumber,
    OpensForGood,
    GrantsWhatIsFree,
    LetsInOneOfHundreds,
    LooksThenTakes,
    LooksThenRenews,
    DatesGrantsLate,
    DatesGrantsOnArrival,
}

/// How long a request is on its way, where a flaw is about that.
const HOP: Duration = Duration::from_millis(1);

/// A store under test with this flaw.
pub(crate) struct Flawed {
    flaw: Flaw,
    worlds: Mutex<HashMap<String, Arc<World>>>,
    clients: AtomicUsize,
    wire: Arc<Wire>,
}

/// Shared by all clients of one namespace.
#[derive(Default)]
struct World {
    memory: Memory,
    notes: Mutex<Notes>,
    refused: AtomicUsize,
}

/// The memory of the flaws.
#[derive(Default)]
struct Notes {
    tokens: HashMap<ClaimId, Token>,
    /// The known holders, also those whose leases are over.
    told: HashMap<Name, Vec<Holder>>,
    waiters: Vec<ClaimId>,
    /// Which client was the last to release, and when.
    last_here: Option<(usize, Moment)>,
}

impl Flawed {
    pub(crate) fn with(flaw: Flaw) -> Self {
        let wire = Arc::new(Wire::new());
        Self { flaw, worlds: Mutex::default(), clients: AtomicUsize::new(0), wire }
    }

    fn client(&self, namespace: &str) -> Arc<dyn Backend> {
        let shared = self.flaw == Flaw::SharesNamespaces;
        let namespace = if shared { "" } else { namespace };
        let mut worlds = self.worlds.lock().unwrap_or_else(PoisonError::into_inner);
        let world = Arc::clone(worlds.entry(namespace.to_owned()).or_default());
        let (number, wire) = (self.clients.fetch_add(1, Ordering::Relaxed), Arc::clone(&self.wire));
        Arc::new(Client { flaw: self.flaw, world, number, wire, closed: Notify::new() })
    }
}

#[async_trait]
impl Subject for Flawed {
    fn name(&self) -> &'static str {
        "flawed"
    }

    fn simulated(&self) -> Option<Arc<dyn Subject>> {
        Some(Arc::new(Self::with(self.flaw)))
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(self.client(""))
    }

    async fn backend_in(&self, namespace: &str) -> Result<Option<Arc<dyn Backend>>, BoxError> {
        Ok(Some(self.client(namespace)))
    }

    async fn wipe(&self) -> Result<bool, BoxError> {
        self.worlds.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(true)
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        // No other flaw needs a network to be seen.
        (self.flaw == Flaw::DatesGrantsOnArrival).then(|| Arc::clone(&self.wire) as Arc<dyn Saboteur>)
    }
}

struct Client {
    flaw: Flaw,
    world: Arc<World>,
    number: usize,
    wire: Arc<Wire>,
    closed: Notify,
}

impl Client {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.world.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name under which the store keeps it.
    fn name(&self, name: &Name, claim: ClaimId) -> Name {
        let kept = match self.flaw {
            Flaw::GrantsEverybody => return Name::new(claim.to_string()).expect("a claim as a name"),
            Flaw::IgnoresCase => name.to_lowercase(),
            Flaw::TrimsSpaces => name.trim_end().to_owned(),
            Flaw::CutsNames => name.chars().take(199).collect(),
            Flaw::NormalizesPaths => {
                let parts = name.split('/').filter(|part| !part.is_empty() && *part != ".");
                parts.collect::<Vec<_>>().join("/")
            }
            _ => return name.clone(),
        };
        Name::new(kept).unwrap_or_else(|_| name.clone())
    }

    fn lease(&self, lease: Duration) -> Duration {
        match self.flaw {
            Flaw::KeepsForever => Duration::from_hours(1),
            Flaw::HalvesLeases => lease / 2,
            Flaw::EndsLeasesEarly => lease.saturating_sub(Duration::from_millis(20)),
            _ => lease,
        }
    }

    fn claim(&self, claim: &Claim) -> Claim {
        let mut inner = claim.clone();
        inner.name = self.name(&claim.name, claim.id);
        inner.lease = self.lease(claim.lease);
        if self.flaw == Flaw::ReservesNothing {
            inner.reserve = 0;
        }
        if self.flaw == Flaw::ForgetsLabels {
            inner.holder = Arc::new(HolderInfo { label: None, ..(*claim.holder).clone() });
        }
        inner.mode = match (self.flaw, claim.mode) {
            (Flaw::WritesBesideReaders, Mode::Exclusive) => Mode::Shared,
            (Flaw::CountsHoldersForPermits, Mode::Permit { of, .. }) => {
                Mode::Permit { take: NonZeroU32::MIN, of }
            }
            (Flaw::AgreesOnAnyNumber, Mode::Permit { take, .. }) => {
                Mode::Permit { take, of: NonZeroU32::MAX }
            }
            (_, mode) => mode,
        };
        inner
    }

    fn grant(&self, grant: &Grant) -> Grant {
        let (name, lease) = (self.name(&grant.name, grant.claim), self.lease(grant.lease));
        Grant { name, lease, ..grant.clone() }
    }

    /// The grant as the client gets it.
    async fn granted(&self, claim: &Claim, grant: Grant) -> Result<Grant, StoreError> {
        let told = self.world.memory.holders(&grant.name).await?;
        let token = {
            let mut notes = self.notes();
            notes.told.insert(grant.name.clone(), told);
            let next = u64::try_from(notes.tokens.len()).expect("a small number") + 1;
            match self.flaw {
                Flaw::RepeatsTokens => Token::MIN,
                Flaw::CountsFromOne => {
                    *notes.tokens.entry(claim.id).or_insert(Token::new(next).expect("a token"))
                }
                _ => grant.token,
            }
        };
        let (name, lease, reserved) = (claim.name.clone(), claim.lease, claim.reserve);
        let mut grant = Grant { name, lease, token, reserved, ..grant };
        let late = match self.flaw {
            Flaw::DatesGrantsLate => {
                tokio::time::sleep(HOP).await;
                true
            }
            Flaw::DatesGrantsOnArrival => {
                self.wire.carry(async {}).await?;
                true
            }
            _ => false,
        };
        if let (true, Standing::Lease { sent, .. }) = (late, &mut grant.standing) {
            *sent = Moment::now();
        }
        Ok(grant)
    }

    /// An attempt of the claim, which the store knows as `inner`.
    async fn attempt(&self, claim: &Claim, inner: &Claim) -> Result<Attempt, StoreError> {
        match self.world.memory.try_acquire(inner).await? {
            Attempt::Granted(grant) => self.granted(claim, grant).await.map(Attempt::Granted),
            busy @ Attempt::Busy { .. } => Ok(busy),
        }
    }

    /// The grant of a claim that was let in past what the store knows.
    async fn let_in(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let name = Name::new(claim.id.to_string()).expect("a claim as a name");
        self.attempt(claim, &Claim { name, ..claim.clone() }).await
    }
}
