//! A small store of sessions, as ZooKeeper is one: grants stand as long as their client's session does.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tenure_conformance::{
    BoxError, Subject, async_trait,
    saboteur::{Hurt, Sabotage, Saboteur},
};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, ClaimId, Grant, LossCause, Moment, Name, Release,
    Renewal, Session, StandingKind, StoreError, Token,
};

/// How long the server keeps a session that it hears nothing of.
const TIMEOUT: Duration = Duration::from_millis(300);
/// How often a client says that it lives.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// What becomes of sessions when connections are reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cuts {
    /// They go on: the client connects again.
    DoNothing,
    /// The server ends them, and their clients learn of it at their next heartbeat.
    EndSessions,
    /// The same, in a store that says so.
    EndSessionsAsDeclared,
}

/// The store.
pub(crate) struct Sessions {
    cuts: Cuts,
    server: Arc<Server>,
}

#[derive(Debug)]
struct Server {
    cuts: Cuts,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    last_session: u64,
    last_token: u64,
    /// When each session ends unless it is heard of.
    sessions: HashMap<u64, Moment>,
    held: HashMap<Name, (ClaimId, u64)>,
}

impl Server {
    /// What stands now: the server ends sessions before it does anything else.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { sessions, held, .. } = &mut *kept;
        sessions.retain(|_, ends| !ends.has_passed());
        held.retain(|_, (_, session)| sessions.contains_key(session));
        kept
    }
}

impl Kept {
    fn holds(&self, grant: &Grant) -> bool {
        self.held.get(&grant.name).is_some_and(|(claim, _)| *claim == grant.claim)
    }
}

impl Sessions {
    pub(crate) fn that(cuts: Cuts) -> Arc<dyn Subject> {
        Arc::new(Self { cuts, server: Arc::new(Server { cuts, kept: Mutex::default() }) })
    }
}

#[async_trait]
impl Subject for Sessions {
    fn name(&self) -> &'static str {
        "sessions"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let client = Arc::new(Client { server: Arc::clone(&self.server), session: Mutex::default() });
        // A session outlives the runtime that opened it.
        let background = Background::new();
        background.spawn(say_that_it_lives(Arc::downgrade(&client)));
        Ok(Arc::new(Connected { client, background }))
    }

    fn session_timeout(&self) -> Option<Duration> {
        Some(TIMEOUT)
    }

    fn forgets(&self, hurt: Hurt) -> bool {
        hurt == Hurt::ExpireSessions
            || (self.cuts == Cuts::EndSessionsAsDeclared && Hurt::ENDS_CONNECTIONS.contains(&hurt))
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::clone(&self.server) as Arc<dyn Saboteur>)
    }
}

#[async_trait]
impl Saboteur for Server {
    fn server(&self) -> String {
        "sessions".to_owned()
    }

    fn can(&self, hurt: Hurt) -> bool {
        matches!(hurt, Hurt::Cut | Hurt::ExpireSessions)
    }

    async fn heal(&self) -> Sabotage {
        Ok(())
    }

    async fn cut(&self) -> Sabotage {
        if self.cuts == Cuts::DoNothing { Ok(()) } else { self.expire_sessions().await }
    }

    async fn expire_sessions(&self) -> Sabotage {
        self.kept().sessions.clear();
        Ok(())
    }
}

struct Client {
    server: Arc<Server>,
    /// The session's number and the client's view of it.
    session: Mutex<Option<(u64, Session)>>,
}

impl Client {
    /// Tells the server that the session lives, and opens another when it does not.
    fn heartbeat(&self) -> (u64, Session) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut kept, now) = (self.server.kept(), Moment::now());
        if let Some((number, session)) = &*session {
            match kept.sessions.get_mut(number) {
                Some(ends) => {
                    *ends = now + TIMEOUT;
                    session.proven(now);
                }
                None => session.end(LossCause::SessionEnded),
            }
            if session.is_alive() {
                return (*number, session.clone());
            }
        }
        kept.last_session += 1;
        let number = kept.last_session;
        kept.sessions.insert(number, now + TIMEOUT);
        session.insert((number, Session::new(TIMEOUT, now))).clone()
    }
}

async fn say_that_it_lives(client: Weak<Client>) {
    while let Some(client) = client.upgrade() {
        client.heartbeat();
        drop(client);
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// A client that lives as long as it is used.
struct Connected {
    client: Arc<Client>,
    background: Background,
}

#[async_trait]
impl Backend for Connected {
    fn store(&self) -> &'static str {
        "sessions"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { standing: StandingKind::Session, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let (number, session) = self.client.heartbeat();
        let mut kept = self.client.server.kept();
        if !kept.sessions.contains_key(&number) {
            return Err(StoreError::unavailable("the session has just ended"));
        }
        match kept.held.get(&claim.name) {
            Some((holder, _)) if *holder != claim.id => return Ok(Attempt::Busy { expires_in: None }),
            _ => {}
        }
        kept.held.insert(claim.name.clone(), (claim.id, number));
        kept.last_token += 1;
        let token = Token::new(kept.last_token).expect("a small number");
        Ok(Attempt::Granted(Grant::in_session(claim, token, session.liveness())))
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let mut kept = self.client.server.kept();
        if !kept.holds(grant) {
            return Ok(Release::Lost(LossCause::SessionEnded));
        }
        kept.held.remove(&grant.name);
        Ok(Release::Released { awaited: false })
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let kept = self.client.server.kept();
        let renewed = |grant| {
            if kept.holds(grant) { Renewal::Renewed } else { Renewal::Lost(LossCause::SessionEnded) }
        };
        Ok(grants.iter().map(renewed).collect())
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}
