//! A client whose grants stand as long as the server hears of it.

use super::{
    client::Client,
    data::{Data, TIMEOUT},
};
use crate::async_trait;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, ClaimId, Conversion, Grant, Liveness, LossCause,
    Memory, Mode, Moment, Release, Renewal, Session, StandingKind, StoreError, forward_backend,
};
use tokio::time::{sleep, timeout};

fn ended() -> StoreError {
    StoreError::unavailable("the session has ended")
}

/// A client in one session after the other. Dropping it leaves its session to the server's timeout.
pub(super) struct InSession {
    shared: Arc<Shared>,
    background: Background,
}

struct Shared {
    client: Client,
    /// Taken while a session is opened, so that there is one at a time.
    current: tokio::sync::Mutex<Option<(u64, Session)>>,
    grants: Mutex<HashMap<ClaimId, Liveness>>,
}

impl InSession {
    pub(super) fn new(client: Client) -> Self {
        let (current, grants) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { client, current, grants }), background: Background::new() }
    }

    /// The session, which is opened if there is none: in a task, because a caller that is no longer polled would keep the
    /// others out.
    async fn session(&self) -> Result<(u64, Session), StoreError> {
        let (shared, background) = (Arc::clone(&self.shared), self.background.handle());
        let opened = background.clone().spawn(async move {
            let mut current = shared.current.lock().await;
            if let Some((number, session)) = &*current
                && session.is_alive()
            {
                return Ok((*number, session.clone()));
            }
            let sent = Moment::now();
            let opened = shared.client.ask(|data, memory| async move { Ok(data.sessions.open(memory)) });
            let (number, session) = (opened.await?, Session::new(TIMEOUT, sent));
            background.spawn(keep_alive(Arc::downgrade(&shared), number, session.clone()));
            Ok(current.insert((number, session)).clone())
        });
        opened.await.map_err(StoreError::failed)?
    }

    /// A grant of the server in this session.
    fn grant(&self, claim: &Claim, node: &Grant, session: &Session) -> Grant {
        let mut grants = self.shared.grants();
        let liveness = grants.entry(claim.id).or_insert_with(|| session.liveness());
        if liveness.loss().is_some() {
            *liveness = session.liveness();
        }
        Grant::in_session(claim, node.token, liveness.clone()).reserving(node.reserved)
    }

    /// Asks until there is an answer, or the session is over and the claim with it: no lease would end a remaining claim.
    async fn remove<T: Send + 'static, Answer>(
        &self,
        claim: ClaimId,
        request: impl Fn(Arc<Data>, Memory) -> Answer + Clone + Send + 'static,
    ) -> Result<T, StoreError>
    where
        Answer: Future<Output = Result<T, StoreError>> + Send,
    {
        let shared = Arc::clone(&self.shared);
        // In a task: no one may poll the caller again, or it may give up before.
        let removal = async move {
            let current = shared.current.lock().await.clone();
            loop {
                let answer = shared.client.ask(request.clone()).await;
                if answer.is_ok() || !current.as_ref().is_some_and(|(_, session)| session.is_alive()) {
                    shared.grants().remove(&claim);
                    return answer;
                }
                sleep(TIMEOUT / 20).await;
            }
        };
        self.background.spawn(removal).await.map_err(StoreError::failed)?
    }
}

impl Shared {
    fn grants(&self) -> MutexGuard<'_, HashMap<ClaimId, Liveness>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the server that the client lives, as long as it does.
async fn keep_alive(client: Weak<Shared>, number: u64, session: Session) {
    while session.is_alive() {
        sleep(TIMEOUT / 6).await;
        let Some(shared) = client.upgrade() else { return };
        // A claim that was lost may be granted again before the answer is here.
        let (sent, grants) = (Moment::now(), shared.grants().clone());
        let heard = shared.client.ask(move |data, _| async move { data.sessions.hear(number).await });
        match timeout(TIMEOUT / 3, heard).await {
            Ok(Ok(Some(lost))) => {
                session.proven(sent);
                for (claim, cause) in lost {
                    if let Some(liveness) = grants.get(&claim) {
                        liveness.end(cause);
                    }
                }
            }
            Ok(Ok(None)) => session.end(LossCause::SessionEnded),
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// The claim as the server keeps it: for as long as its session.
fn node(claim: &Claim) -> Claim {
    Claim { lease: TIMEOUT, ..claim.clone() }
}

#[async_trait]
impl Backend for InSession {
    forward_backend!(
        self => self.shared.client,
        except try_acquire, try_acquire_all, acquire, release, renew, withdraw, convert, capabilities, background, close,
    );

    fn capabilities(&self) -> Capabilities {
        let capabilities = self.shared.client.capabilities();
        Capabilities { standing: StandingKind::Session, together: false, succession: 0, ..capabilities }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let ((number, session), node) = (self.session().await?, node(claim));
        let attempt = self.shared.client.ask(move |data, memory| async move {
            let sessions = &data.sessions;
            if sessions.hear(number).await?.is_none() {
                return Ok(None);
            }
            if sessions.is_removed(number, node.id) {
                return Ok(Some(Attempt::Busy { expires_in: None }));
            }
            let attempt = memory.try_acquire(&node).await?;
            if let Attempt::Granted(grant) = &attempt {
                sessions.granted(number, grant);
            }
            Ok(Some(attempt))
        });
        match attempt.await? {
            Some(Attempt::Granted(node)) => Ok(Attempt::Granted(self.grant(claim, &node, &session))),
            Some(Attempt::Busy { .. }) => Ok(Attempt::Busy { expires_in: None }),
            None => {
                session.end(LossCause::SessionEnded);
                Err(ended())
            }
        }
    }

    /// The queue's grant is not in the session yet. It ends soon unless the client asks for it, so a client that is no
    /// longer polled blocks no others.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        loop {
            if let Attempt::Granted(grant) = self.try_acquire(claim).await? {
                return Ok(grant);
            }
            let ((number, session), node) = (self.session().await?, node(claim));
            let liveness = session.liveness();
            let queued = self.shared.client.queue(move |data, memory| async move {
                if data.sessions.is_removed(number, node.id) {
                    return Err(StoreError::claim_spent("the claim was withdrawn"));
                }
                memory.acquire(&node).await
            });
            tokio::select! {
                biased;
                granted = queued => drop(granted?),
                _ = liveness.ended() => return Err(ended()),
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let (released, request) = (grant.clone(), ClaimId::new());
        self.remove(grant.claim, move |data, memory| {
            let grant = released.clone();
            async move {
                if let Some(answer) = data.sessions.released(grant.claim, request) {
                    return Ok(answer);
                }
                let answer = memory.release(&grant).await?;
                data.sessions.remove(grant.claim, Some((request, answer)));
                Ok(answer)
            }
        })
        .await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        Ok(vec![Renewal::Lost(LossCause::SessionEnded); grants.len()])
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let withdrawn = claim.clone();
        self.remove(claim.id, move |data, memory| {
            let claim = withdrawn.clone();
            async move {
                data.sessions.remove(claim.id, None);
                memory.withdraw(&claim).await
            }
        })
        .await
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let grant = grant.clone();
        self.shared
            .client
            .ask(move |data, memory| async move {
                let converted = memory.convert(&grant, to).await?;
                if converted == Conversion::Converted {
                    data.sessions.convert(grant.claim, to);
                }
                Ok(converted)
            })
            .await
    }

    fn background(&self) -> Background {
        self.background.clone()
    }

    /// Ends the session with its last client.
    async fn close(&self) {
        if self.background.clients() > 1 {
            return;
        }
        let current = self.shared.current.lock().await.take();
        if let Some((number, session)) = current {
            // Without an answer, the session is left to its timeout.
            let _ = self
                .shared
                .client
                .ask(move |data, _| async move {
                    data.sessions.end(number).await;
                    Ok(())
                })
                .await;
            session.end(LossCause::SessionEnded);
        }
    }
}
