//! The members of the cluster, and a request to one of them.

use crate::errors::{
    Verdict, is_about_a_certificate, is_stale_login, may_be_carried_out, refused, said, verdict,
};
use etcd_client::{Client, ConnectOptions, Error, WatchOptions};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::{Moment, StoreError};
use tokio::{
    runtime::Handle,
    sync::OnceCell,
    time::{sleep, timeout},
};

/// How soon to ask again while the cluster has no leader.
const AGAIN: Duration = Duration::from_millis(50);

/// The members of the cluster. Requests go to one of them until it fails, then to the next.
///
/// The client could choose among the members by itself, but it would choose a silent one again and again.
pub(crate) struct Link {
    members: Vec<Member>,
    /// The member that answered last.
    current: AtomicUsize,
    options: ConnectOptions,
    /// How long to wait for an answer, of all members together.
    pub(crate) patience: Duration,
    /// Where connections live: they outlive the callers' runtimes.
    pub(crate) background: Handle,
}

struct Member {
    endpoint: String,
    connection: Mutex<Arc<Connection>>,
}

/// A member's client, once there is one. Another takes its place when the member is silent.
struct Connection {
    client: OnceCell<Client>,
    /// When it was made, or last got an answer.
    answered: Mutex<Moment>,
}

/// The answer to a request.
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    /// Whether an earlier copy of the request got no answer, and may have been carried out.
    pub(crate) resent: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Silence {
    /// The lease is gone.
    SessionOver,
    Failed(StoreError),
}

impl Link {
    pub(crate) fn new(
        endpoints: &[String],
        options: ConnectOptions,
        patience: Duration,
        background: Handle,
    ) -> Self {
        let member = |endpoint: &String| Member {
            endpoint: endpoint.clone(),
            connection: Mutex::new(Connection::new()),
        };
        let members = endpoints.iter().map(member).collect();
        // Clients do not all begin with the first member.
        let current = AtomicUsize::new(std::process::id() as usize % endpoints.len().max(1));
        Self { members, current, options, patience, background }
    }

    /// Sends a request that may be sent twice, until a member answers it.
    pub(crate) async fn ask<T, F>(&self, request: impl Fn(Client) -> F) -> Result<Answer<T>, Silence>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.ask_for(self.patience, request).await
    }

    /// Like [`ask`](Self::ask), with this patience, split evenly among the members.
    pub(crate) async fn ask_for<T, F>(
        &self,
        patience: Duration,
        request: impl Fn(Client) -> F,
    ) -> Result<Answer<T>, Silence>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let until = Moment::now() + patience;
        let count = self.members.len();
        let parts = u32::try_from(count).unwrap_or(1);
        let first = self.current.load(Ordering::Relaxed);
        let (mut resent, mut soon, mut why, mut refusal) = (false, false, String::new(), None);
        for turn in 0.. {
            if turn > 0 && turn % count == 0 {
                if !soon || until.has_passed() {
                    break;
                }
                soon = false;
                sleep(AGAIN).await;
            }
            let at = (first + turn) % count;
            let member = &self.members[at];
            let connection = member.connection();
            // The client's futures are large.
            let asked = Box::pin(async {
                let client = self.client(member, &connection).await?;
                match request(client.clone()).await {
                    Err(error) if is_stale_login(&error) => {
                        client.refresh_token().await?;
                        request(client).await
                    }
                    answer => answer,
                }
            });
            let error = match timeout((patience / parts).min(until.left()), asked).await {
                Ok(Ok(value)) => {
                    *connection.answered() = Moment::now();
                    self.current.store(at, Ordering::Relaxed);
                    return Ok(Answer { value, resent });
                }
                Ok(Err(error)) => {
                    resent |= may_be_carried_out(&error);
                    match verdict(&error) {
                        Verdict::SessionOver => return Err(Silence::SessionOver),
                        Verdict::Refused => return Err(Silence::Failed(refused(error))),
                        Verdict::Elsewhere if is_about_a_certificate(&error) => {
                            let text = said(&error);
                            refusal = Some(refused(error));
                            text
                        }
                        Verdict::Elsewhere => said(&error),
                        Verdict::Soon => {
                            soon = true;
                            said(&error)
                        }
                    }
                }
                Err(_) => {
                    // The connection may be broken without a word. One request may be too impatient to tell.
                    if (*connection.answered() + self.patience / parts).has_passed() {
                        member.disconnect(&connection);
                    }
                    resent = true;
                    "no answer in time".to_owned()
                }
            };
            if turn < count {
                let separator = if why.is_empty() { "" } else { ", " };
                why = format!("{why}{separator}{}: {error}", member.endpoint);
            }
        }
        let unavailable = || StoreError::unavailable(format!("no member could serve the request: {why}"));
        Err(Silence::Failed(refusal.unwrap_or_else(unavailable)))
    }

    /// Waits until something changes in these keys after the revision `after`, or until a change may have been missed.
    pub(crate) async fn changed(&self, key: Vec<u8>, options: WatchOptions, after: i64) {
        let options = options.with_start_revision(after + 1);
        let member = &self.members[self.current.load(Ordering::Relaxed)];
        let watched = Box::pin(async {
            let mut client = self.client(member, &member.connection()).await?;
            let mut watch = client.watch(key, Some(options)).await?;
            while let Some(told) = watch.message().await? {
                if !told.events().is_empty() {
                    return Ok(());
                }
                if told.canceled() {
                    return Err(Error::WatchError(told.cancel_reason().to_owned()));
                }
            }
            Err(Error::WatchError("the stream ended".to_owned()))
        });
        if let Err(error) = watched.await {
            tracing::debug!(member = member.endpoint, %error, "a watch ended");
            sleep(AGAIN).await;
        }
    }

    /// The member's client. It connects in the background: a caller may give up or not be polled, while others wait for it.
    async fn client(&self, member: &Member, connection: &Arc<Connection>) -> Result<Client, Error> {
        if let Some(client) = connection.client.get() {
            return Ok(client.clone());
        }
        let (connection, endpoint, options) =
            (Arc::clone(connection), member.endpoint.clone(), self.options.clone());
        let connecting = self.background.spawn(async move {
            let connect = || Box::pin(Client::connect([endpoint], Some(options)));
            connection.client.get_or_try_init(connect).await.cloned()
        });
        connecting.await.map_err(|_| Error::Internal("this client was closed".to_owned()))?
    }
}

impl Member {
    fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has the next request connect anew, unless another has seen to that, or the first connection is still being made.
    fn disconnect(&self, silent: &Arc<Connection>) {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&connection, silent) && silent.client.initialized() {
            *connection = Connection::new();
        }
    }
}

impl Connection {
    fn new() -> Arc<Self> {
        Arc::new(Self { client: OnceCell::new(), answered: Mutex::new(Moment::now()) })
    }

    fn answered(&self) -> MutexGuard<'_, Moment> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Silence> for StoreError {
    fn from(silence: Silence) -> Self {
        match silence {
            Silence::SessionOver => Self::unavailable("the session has ended"),
            Silence::Failed(error) => error,
        }
    }
}
