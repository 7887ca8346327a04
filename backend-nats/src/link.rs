//! The connection, and a request over it.

use crate::{
    errors::{not_connected, unanswered},
    options::Checked,
};
use async_nats::{Client, Event, connection::State, jetstream};
use rustls::crypto::{CryptoProvider, ring};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Moment, StoreError};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// How often to look whether there is a connection.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A connection to one of the servers, which its client makes anew when it breaks.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) context: jetstream::Context,
    response_timeout: Duration,
    /// The last error that a server has sent by itself, and when it came.
    said: Arc<Mutex<Option<(Moment, String)>>>,
    /// The connection that was given up last, by its number.
    given_up: Arc<AtomicU64>,
    /// A task that ends with the connection's runtime.
    beside: Option<Arc<AbortOnDropHandle<()>>>,
}

/// No answer came in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct Silence(Duration);

impl Link {
    /// Connects, on this runtime.
    pub(crate) async fn connect(options: &Checked, runtime: &Handle) -> Result<Self, StoreError> {
        let said = Arc::<Mutex<Option<(Moment, String)>>>::default();
        let heard = Arc::clone(&said);
        let client = options.client.clone().event_callback(move |event| {
            let heard = Arc::clone(&heard);
            async move {
                if let Event::ServerError(error) = event {
                    let said = Some((Moment::now(), error.to_string()));
                    *heard.lock().unwrap_or_else(PoisonError::into_inner) = said;
                }
            }
        });
        choose_cryptography();
        let addresses = options.addresses.clone();
        let connecting = runtime.spawn(async move { client.connect(addresses).await });
        let client = connecting.await.map_err(StoreError::unavailable)?.map_err(not_connected)?;
        let beside = Some(Arc::new(AbortOnDropHandle::new(runtime.spawn(std::future::pending()))));
        Ok(Self { said, beside, ..Self::over(client, options.values.response_timeout) })
    }

    /// This connection with half the timeout, for two attempts to read. During an election, the cluster leaves some
    /// requests unanswered.
    pub(crate) fn half_as_patient(&self) -> Self {
        Self { response_timeout: self.response_timeout / 2, ..self.clone() }
    }

    /// Whether the runtime of the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.beside.as_ref().is_some_and(|task| task.is_finished())
    }

    /// Uses a connection of the program's.
    pub(crate) fn over(client: Client, response_timeout: Duration) -> Self {
        let context = jetstream::new(client.clone());
        let (said, given_up) = (Arc::default(), Arc::default());
        Self { client, context, response_timeout, said, given_up, beside: None }
    }

    /// Sends a request once there is a connection, and waits for the answer. The client would keep a request until then,
    /// and send it even if the caller has given up.
    ///
    /// If nothing comes in time, the connection may be broken without either side knowing: it is made anew, perhaps to
    /// another server.
    pub(crate) async fn ask<T, E>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, StoreError> {
        let (number, heard, sent) = (self.number(), self.heard(), Moment::now());
        let sending = async {
            while self.client.connection_state() != State::Connected {
                sleep(LOOK_AGAIN).await;
            }
            request.await
        };
        if let Ok(answer) = timeout(self.response_timeout, sending).await {
            return Ok(answer);
        }
        // During an election, the server leaves requests unanswered, and answers others. The program's own connection is
        // left alone.
        let is_connected = self.client.connection_state() == State::Connected;
        let is_silent = self.beside.is_some() && is_connected && heard == self.heard();
        if is_silent && number == self.number() && self.given_up.swap(number, Ordering::Relaxed) != number {
            // It fails if the client has ended, and then there is no connection.
            let _ = timeout(LOOK_AGAIN, self.client.force_reconnect()).await;
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).take();
        let said = said.filter(|(when, _)| sent <= *when).map(|(_, said)| said);
        Err(unanswered(Silence(self.response_timeout), said))
    }

    /// How many messages have come.
    fn heard(&self) -> u64 {
        self.client.statistics().in_messages.load(Ordering::Relaxed)
    }

    fn number(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }
}

/// The client uses the process's default crypto provider, and panics if there are two and no default. A provider that the
/// program has chosen stays.
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has just installed one.
        let _ = ring::default_provider().install_default();
    }
}
