//! The tools of a case: clients, its own names, other processes.

use crate::{
    Form, Need, Probe, Subject,
    any_records::RecordClient,
    check::{Check, Stop, chain, ensure, eventually, expired, within},
    pause,
    saboteur::{Hurt, Saboteur},
    stopped_clock::with_slow_clock,
    victim::Victim,
};
use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{
    Backend, Capabilities, ClaimId, Error, Guard, Holder, Lock, Locks, Moment, StandingKind, Wakeup,
};

/// For waits that end by themselves when all is well, also with a new connection to a busy server.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take to close.
const CLOSING: Duration = Duration::from_secs(20);
/// How long a closed client may still have a queue: by then, also on a busy machine, the runtime has dropped the tasks
/// that a case aborted.
const ABORTING: Duration = Duration::from_secs(5);
/// How long after the end of a case its traces may stay in the store: no lease of a dead client is longer.
const LEFTOVERS: Duration = Duration::from_secs(8);

/// The tools of a case: clients of the store under test, and names that no other case and no other run uses.
pub(crate) struct Stage {
    subject: Arc<dyn Subject>,
    capabilities: Capabilities,
    prefix: String,
    opener: Opener,
    /// The clients of the subject's record store, if it offers one.
    records: Mutex<Vec<RecordClient>>,
}

/// Makes the clients of a case, in any runtime, and keeps track of them until its end. Clones share them.
#[derive(Clone)]
pub(crate) struct Opener {
    subject: Arc<dyn Subject>,
    form: Form,
    clients: Arc<Mutex<Vec<Client>>>,
}

impl Opener {
    /// Makes a new client. The store runs its tasks in the runtime of this call, unless it has a better place.
    pub(crate) async fn client(&self) -> Check<Client> {
        Ok(self.client_of(open(&*self.subject).await?))
    }

    /// Makes new clients whose tasks in the background follow the clock of this runtime, and stand still with it.
    pub(crate) async fn with_stoppable_clock<const N: usize>(&self) -> Check<[Client; N]> {
        with_slow_clock("making clients", async {
            let mut clients = Vec::with_capacity(N);
            for number in 0..N {
                let client = self.client().await?;
                client.lock(format!("{number}.{}", ClaimId::new())).acquire().await?.release().await?;
                clients.push(client);
            }
            clients.try_into().map_err(|_| Stop::failed("as many clients as were asked for"))
        })
        .await
    }

    /// Makes a new client of the backend that `other` uses.
    pub(crate) fn client_beside(&self, other: &Client) -> Client {
        self.client_of(Arc::clone(other.probe.backend()))
    }

    fn client_of(&self, backend: Arc<dyn Backend>) -> Client {
        let probe = Probe::over(backend);
        let client = Client { locks: Locks::new(probe.clone()), form: self.form, probe };
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(client.clone());
        client
    }
}

/// A client of the store under test: its locks, and the [`Probe`] between them and the store.
#[derive(Clone)]
pub(crate) struct Client {
    locks: Locks,
    form: Form,
    /// Records this client's requests and injects faults into them.
    pub(crate) probe: Probe,
}

impl Deref for Client {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}

impl Client {
    /// Returns the lock of this name, in the form that the case is about: see [`Case::form`](crate::Case::form).
    pub(crate) fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.form.of(&self.locks, name)
    }

    /// Lists the holders of names. A cluster may be choosing a leader.
    pub(crate) async fn list(&self, prefix: impl AsRef<str>) -> Check<Vec<Holder>> {
        let until = Moment::now() + PATIENCE;
        loop {
            match self.locks.list(&prefix).await {
                Err(Error::Unavailable { .. }) if !until.has_passed() => pause::look_again().await,
                listed => return Ok(listed?),
            }
        }
    }

    /// Acquires a lock that is free, or soon will be.
    pub(crate) async fn take(&self, name: &str) -> Check<Guard> {
        Ok(self.lock(name).wait(PATIENCE).acquire().await?)
    }

    /// Acquires the lock, and waits until it is lost for lack of renewals.
    pub(crate) async fn lost_by_expiry(&self, name: &str) -> Check<Guard> {
        Ok(expired(self.lock(name).wait(PATIENCE)).await?.0)
    }

    /// Returns a lock of this name that excludes [`lock`](Self::lock) of every other client: see [`Form::rival`].
    pub(crate) fn rival(&self, name: impl AsRef<str>) -> Lock {
        self.form.rival().of(&self.locks, name)
    }
}

impl Stage {
    /// Makes the stage for the case of this name, in this form of locks.
    pub(crate) async fn new(subject: Arc<dyn Subject>, case: &str, form: Form) -> Check<Self> {
        let backend = open(&*subject).await?;
        let capabilities = backend.capabilities();
        backend.close().await;
        let run = ClaimId::new().to_string();
        let prefix = format!("{}.{case}.", &run[..8]);
        let opener = Opener { subject: Arc::clone(&subject), form, clients: Arc::default() };
        let stage = Self { subject, capabilities, prefix, opener, records: Mutex::default() };
        match form {
            Form::Lock | Form::Writer => {}
            Form::Reader => stage.needs(Need::Readers)?,
            Form::Permit(_) | Form::AllPermits(_) => stage.needs(Need::Permits)?,
        }
        Ok(stage)
    }

    /// Returns the store's capabilities.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// How much longer than its lease the store may keep a lock: the lease is longer by the margin, and the time by which it
    /// ends may be behind by the margin.
    pub(crate) fn overtime(&self) -> Duration {
        self.capabilities.margin * 2
    }

    /// Returns the store under test.
    pub(crate) fn subject(&self) -> &Arc<dyn Subject> {
        &self.subject
    }

    /// Continues only if the store has what the case needs.
    pub(crate) fn needs(&self, need: Need) -> Check {
        let has = match need {
            Need::Lease => self.capabilities.standing == StandingKind::Lease,
            Need::Session => self.capabilities.standing == StandingKind::Session,
            Need::Readers => self.capabilities.shared,
            Need::Permits => self.capabilities.permits,
            Need::Latches => self.capabilities.latches,
            Need::Together => self.capabilities.together,
            Need::Listing => self.capabilities.listing,
            Need::Succession => self.capabilities.succession > 0,
            Need::Wakeups => self.capabilities.wakeup != Wakeup::Poll,
            Need::Fair => self.capabilities.fair,
            Need::Processes => self.subject.environment().is_some(),
            Need::Hurt(hurt) => self.subject.saboteur().is_some_and(|saboteur| saboteur.can(hurt)),
            // Only trying it tells.
            Need::Namespaces | Need::Restart | Need::Wipe | Need::Records | Need::OneInstant => true,
        };
        if has { Ok(()) } else { Err(Stop::Lacks(need)) }
    }

    /// Returns a lock name that no other case and no other run uses.
    pub(crate) fn name(&self, last: &str) -> String {
        format!("{}{last}", self.prefix)
    }

    /// Returns the beginning of all names of this case.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Makes a new client.
    pub(crate) async fn client(&self) -> Check<Client> {
        self.opener.client().await
    }

    /// Makes a new client of the backend that `other` uses: they share its connections, and nothing else.
    pub(crate) fn client_beside(&self, other: &Client) -> Client {
        self.opener.client_beside(other)
    }

    /// Makes new clients of the subject's record store.
    pub(crate) async fn record_clients<const N: usize>(&self) -> Check<[RecordClient; N]> {
        let mut clients = Vec::with_capacity(N);
        for _ in 0..N {
            let client = self.subject.records().await.map_err(|error| Stop::failed(chain(&*error)))?;
            clients.push(client.ok_or(Stop::Lacks(Need::Records))?.0);
        }
        self.records.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&clients);
        clients.try_into().map_err(|_| Stop::failed("as many clients as were asked for"))
    }

    /// Returns a maker of clients for other runtimes.
    pub(crate) fn opener(&self) -> Opener {
        self.opener.clone()
    }

    /// Makes several new clients.
    pub(crate) async fn clients<const N: usize>(&self) -> Check<[Client; N]> {
        let mut clients = Vec::with_capacity(N);
        for _ in 0..N {
            clients.push(self.client().await?);
        }
        clients.try_into().map_err(|_| Stop::failed("as many clients as were asked for"))
    }

    /// Makes a new client in another namespace of the store.
    pub(crate) async fn client_in(&self, namespace: &str) -> Check<Client> {
        match self.subject.backend_in(namespace).await {
            Ok(Some(backend)) => Ok(self.opener.client_of(backend)),
            Ok(None) => Err(Stop::Lacks(Need::Namespaces)),
            Err(error) => Err(Stop::failed(chain(&*error))),
        }
    }

    /// Restarts the store. Only for cases that run alone.
    pub(crate) async fn restart(&self) -> Check {
        match self.subject.restart().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Stop::Lacks(Need::Restart)),
            Err(error) => Err(Stop::failed(chain(&*error))),
        }
    }

    /// Empties the store. Only for cases that run alone.
    pub(crate) async fn wipe(&self) -> Check {
        match self.subject.wipe().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Stop::Lacks(Need::Wipe)),
            Err(error) => Err(Stop::failed(chain(&*error))),
        }
    }

    /// Returns the saboteur of the store's server, if it can inject all these faults. Only for cases that run alone;
    /// the server is healed at their end.
    pub(crate) fn saboteur(&self, hurts: &[Hurt]) -> Check<Arc<dyn Saboteur>> {
        hurts.iter().try_for_each(|hurt| self.needs(Need::Hurt(*hurt)))?;
        self.subject
            .saboteur()
            .ok_or_else(|| Stop::failed("`Subject::saboteur` returned None after it had returned one"))
    }

    /// Starts another process that holds locks of the same store and can be killed.
    pub(crate) async fn victim(&self) -> Check<Victim> {
        let environment = self.subject.environment().ok_or(Stop::Lacks(Need::Processes))?;
        Victim::start(self.subject.name(), self.opener.form, environment).await
    }

    /// Closes all clients, and checks that the case left nothing behind: no queue in the clients, no grant in the
    /// store.
    pub(crate) async fn strike(self) -> Check {
        let clients = &self.opener.clients;
        let clients = std::mem::take(&mut *clients.lock().unwrap_or_else(PoisonError::into_inner));
        for client in &clients {
            client.probe.heal();
            within(CLOSING, "closing a client after the case", client.close()).await?;
        }
        let records = std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner));
        for client in records {
            within(CLOSING, "closing a client of the record store after the case", client.close()).await?;
        }
        for client in &clients {
            eventually!(
                ABORTING,
                client.names_in_use() == 0,
                "no queue is left in {client:?} after the case"
            );
        }
        drop(clients);
        if !self.capabilities.listing {
            return Ok(());
        }
        let backend = open(&*self.subject).await?;
        let outcome = nothing_left(&*backend, &self.prefix).await;
        backend.close().await;
        outcome
    }
}

async fn nothing_left(backend: &dyn Backend, prefix: &str) -> Check {
    let mut left;
    eventually!(
        LEFTOVERS,
        {
            left = backend.list(prefix).await;
            left.as_ref().is_ok_and(Vec::is_empty)
        },
        "no grant is left in the store after the case, but {left:?}"
    );
    Ok(())
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.locks).finish()
    }
}

/// A new client. A cluster may be choosing a leader.
async fn open(subject: &dyn Subject) -> Check<Arc<dyn Backend>> {
    let until = Moment::now() + PATIENCE;
    loop {
        match subject.backend().await {
            Ok(backend) => return Ok(backend),
            Err(error) => ensure!(
                matches!(error.downcast_ref(), Some(Error::Unavailable { .. })) && !until.has_passed(),
                "no new client: {}",
                chain(&*error)
            ),
        }
        pause::look_again().await;
    }
}
