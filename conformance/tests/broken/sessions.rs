//! A store whose grants stand as long as their client's session, sound or with one flaw.

use crate::wire::Wire;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_conformance::{BoxError, Subject, async_trait, saboteur::Saboteur};
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, ClaimId, Grant, LossCause, Memory, Moment, Name, Release, Renewal,
    Session, StandingKind, StoreError,
};
use tokio::runtime::{Builder, Runtime};

/// How long sessions live without a sign of life.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The timeout where a session is to outlive a fault.
const LONG_TIMEOUT: Duration = Duration::from_secs(10);

/// The runtime that keeps sessions alive, even when the runtimes of their users end.
static ELSEWHERE: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build();
    runtime.expect("a runtime for the sessions")
});

/// A flaw of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionFlaw {
    /// Nothing.
    None,
    /// A client that hears nothing of its session goes on in it.
    BelievesForEver,
    /// A node of an old session counts as a grant in the next one.
    GrantsGhosts,
    /// A sign of life counts from its answer.
    DatesProofsLate,
    /// An unanswered removal is given up together with its caller.
    GivesRemovalsUp,
    /// The faults of its saboteur change nothing.
    IsNotHurt,
    /// Signs of life end and stand still with the runtime in which the session was opened.
    LivesInOneRuntime,
}

impl SessionFlaw {
    /// How long the server keeps a session of which it hears nothing.
    fn timeout(self) -> Duration {
        match self {
            Self::GivesRemovalsUp => LONG_TIMEOUT,
            _ => TIMEOUT,
        }
    }
}

/// A store under test with this flaw.
pub(crate) struct Sessions {
    flaw: SessionFlaw,
    server: Arc<Server>,
}

/// The server, and the way to it.
struct Server {
    timeout: Duration,
    wire: Arc<Wire>,
    /// Its nodes: grants whose lease is the rest of their session.
    nodes: Memory,
    /// In which session each node was made.
    sessions: Mutex<HashMap<ClaimId, Vec<Grant>>>,
    /// The names with waiters, so that a release wakes them.
    awaited: Mutex<HashSet<Name>>,
}

impl Server {
    fn sessions(&self) -> MutexGuard<'_, HashMap<ClaimId, Vec<Grant>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaited(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of a session, all of whose nodes stand for another timeout.
    async fn ping(&self, session: ClaimId) -> Result<(), StoreError> {
        let nodes = self.sessions().get(&session).cloned().unwrap_or_default();
        self.nodes.renew(&nodes).await.map(drop)
    }

    fn owner(&self, claim: ClaimId) -> Option<ClaimId> {
        let sessions = self.sessions();
        let made_it = |(_, nodes): &(&ClaimId, &Vec<Grant>)| nodes.iter().any(|node| node.claim == claim);
        sessions.iter().find(made_it).map(|(session, _)| *session)
    }

    /// Makes a node in a session, unless one stands already.
    async fn create(&self, session: ClaimId, claim: &Claim) -> Result<Attempt, StoreError> {
        let node = Claim { lease: self.timeout, ..claim.clone() };
        let stood = self.owner(claim.id).is_some();
        let answer = self.nodes.try_acquire(&node).await?;
        match &answer {
            Attempt::Granted(node) if !stood => {
                self.sessions().entry(session).or_default().push(node.clone());
            }
            Attempt::Busy { .. } if claim.waits => _ = self.awaited().insert(claim.name.clone()),
            Attempt::Granted(_) | Attempt::Busy { .. } => {}
        }
        Ok(answer)
    }

    async fn delete(&self, claim: &Claim) -> Result<Release, StoreError> {
        for nodes in self.sessions().values_mut() {
            nodes.retain(|node| node.claim != claim.id);
        }
        let node = Grant::leased(claim, tenure_core::Token::MIN, Moment::now());
        Ok(match self.nodes.release(&node).await? {
            Release::Released { .. } => Release::Released { awaited: self.awaited().remove(&claim.name) },
            lost @ Release::Lost(_) => lost,
        })
    }
}

impl Sessions {
    pub(crate) fn with(flaw: SessionFlaw) -> Self {
        let (timeout, wire) = (flaw.timeout(), Arc::new(Wire::new()));
        let (nodes, sessions, awaited) = (Memory::new(), Mutex::default(), Mutex::default());
        Self { flaw, server: Arc::new(Server { timeout, wire, nodes, sessions, awaited }) }
    }
}

#[async_trait]
impl Subject for Sessions {
    fn name(&self) -> &'static str {
        "sessions"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let (flaw, server) = (self.flaw, Arc::clone(&self.server));
        Ok(Arc::new(Client { flaw, server, live: Mutex::default() }))
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        let wire = Arc::clone(&self.server.wire);
        Some(if self.flaw == SessionFlaw::IsNotHurt { Arc::new(Wire::new()) } else { wire })
    }
}

/// One client, in one session after the other.
struct Client {
    flaw: SessionFlaw,
    server: Arc<Server>,
    live: Mutex<Option<(ClaimId, Session)>>,
}

impl Client {
    fn current(&self) -> Option<(ClaimId, Session)> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.clone().filter(|(_, session)| session.is_alive())
    }

    /// The session, which is opened when there is none.
    async fn session(&self) -> Result<(ClaimId, Session), StoreError> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let (id, sent) = (ClaimId::new(), Moment::now());
        self.server.wire.carry(async {}).await?;
        let timeout = match self.flaw {
            SessionFlaw::BelievesForEver => Duration::from_hours(1),
            _ => self.server.timeout,
        };
        let session = Session::new(timeout, sent);
        let lives = keep_alive(self.flaw, Arc::clone(&self.server), id, session.clone());
        match self.flaw {
            SessionFlaw::LivesInOneRuntime => tokio::spawn(lives),
            _ => ELSEWHERE.spawn(lives),
        };
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some((id, session.clone()));
        Ok((id, session))
    }
}

/// Gives signs of life as long as the session stands.
async fn keep_alive(flaw: SessionFlaw, server: Arc<Server>, id: ClaimId, session: Session) {
    while session.is_alive() {
        let sent = Moment::now();
        if let Ok(Ok(())) = server.wire.carry(server.ping(id)).await {
            let late = flaw == SessionFlaw::DatesProofsLate;
            session.proven(if late { Moment::now() } else { sent });
        }
        tokio::time::sleep(server.timeout / 6).await;
    }
}

/// Deletes a node for certain: asks until there is an answer, or until its session is over and the node goes with it.
async fn remove(server: Arc<Server>, session: Option<Session>, claim: Claim) -> Result<Release, StoreError> {
    loop {
        let answer = server.wire.carry(server.delete(&claim)).await;
        if answer.is_ok() || !session.as_ref().is_some_and(Session::is_alive) {
            return answer?;
        }
        tokio::time::sleep(server.timeout / 20).await;
    }
}

#[async_trait]
impl Backend for Client {
    fn store(&self) -> &'static str {
        "sessions"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { standing: StandingKind::Session, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let (id, session) = self.session().await?;
        let ghost = self.server.owner(claim.id).is_some_and(|owner| owner != id);
        if ghost && self.flaw != SessionFlaw::GrantsGhosts {
            let _deleted = self.server.wire.carry(self.server.delete(claim)).await??;
        }
        match self.server.wire.carry(self.server.create(id, claim)).await?? {
            Attempt::Granted(node) => {
                Ok(Attempt::Granted(Grant::in_session(claim, node.token, session.liveness())))
            }
            // A node stands as long as its session does: the end is unknown beforehand.
            Attempt::Busy { .. } => Ok(Attempt::Busy { expires_in: None }),
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let Grant { claim: id, name, mode, lease, .. } = grant.clone();
        let claim = Claim { id, name, mode, lease, waits: false, reserve: 0, holder: Arc::default() };
        if self.flaw == SessionFlaw::GivesRemovalsUp {
            return self.server.wire.carry(self.server.delete(&claim)).await?;
        }
        let session = self.current().map(|(_, session)| session);
        // The caller may give up before the session ends, and no lease would end a remaining node.
        ELSEWHERE.spawn(remove(Arc::clone(&self.server), session, claim)).await.expect("a removal ends")
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        Ok(vec![Renewal::Lost(LossCause::SessionEnded); grants.len()])
    }
}
