//! A fault run convicts a store whose grants end with their connection: in `ZooKeeper` a cut is no excuse.

use crate::{
    PATIENCE,
    server::{ONE, Place},
};
use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tenure_conformance::{
    BoxError, Subject,
    faults::{Options, Outcome, run},
    judge::{Broken, Judge, Violation},
    saboteur::{Hurt, Sabotage, SabotageError, Saboteur},
};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, ClaimId, Grant, Moment, Release, Renewal, Session,
    StandingKind, StoreError, async_trait,
};
use tenure_zk::{ZkBackend, ZkOptions};
use tokio::sync::RwLock;

/// A round takes fifteen of them.
const SESSION: Duration = Duration::from_secs(1);
/// One that ends for no other reason than that somebody ends it.
const LONG_SESSION: Duration = Duration::from_secs(30);

/// A client that opens another session whenever its connection was cut, and tells no holder that the old one, and all that
/// was granted in it, is over.
struct Forgetful {
    options: ZkOptions,
    /// A request has it until it is answered.
    zookeeper: RwLock<ZkBackend>,
    /// In which all its holders believe.
    believed: Session,
    background: Background,
}

impl Forgetful {
    async fn connect(options: ZkOptions) -> Result<Self, BoxError> {
        let options = options.session_timeout(LONG_SESSION);
        let zookeeper = ZkBackend::connect(options.clone()).await?;
        let believed = Session::new(Duration::from_hours(1), Moment::now());
        let background = zookeeper.background();
        Ok(Self { options, zookeeper: RwLock::new(zookeeper), believed, background })
    }

    async fn reconnect(&self) -> Result<(), BoxError> {
        let another = ZkBackend::connect(self.options.clone()).await?;
        let mut zookeeper = self.zookeeper.write().await;
        zookeeper.close().await;
        *zookeeper = another;
        Ok(())
    }
}

#[async_trait]
impl Backend for Forgetful {
    fn store(&self) -> &'static str {
        "forgetful"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { standing: StandingKind::Session, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        Ok(match self.zookeeper.read().await.try_acquire(claim).await? {
            Attempt::Granted(grant) => {
                Attempt::Granted(Grant::in_session(claim, grant.token, self.believed.liveness()))
            }
            busy @ Attempt::Busy { .. } => busy,
        })
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        self.zookeeper.read().await.release(grant).await
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        Ok(vec![Renewal::Renewed; grants.len()])
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.zookeeper.read().await.withdraw(claim).await
    }

    fn background(&self) -> Background {
        self.background.clone()
    }

    async fn close(&self) {
        self.zookeeper.read().await.close().await;
    }
}

/// What the subject is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// The real one.
    Sound,
    /// [`Forgetful`].
    Forgetful,
}

/// A part of the server, whose connections are cut now and then.
struct InPart {
    store: Store,
    options: ZkOptions,
    cutter: Arc<Cutter>,
}

#[derive(Debug)]
struct Cutter {
    server: Arc<dyn Saboteur>,
    clients: Mutex<Vec<Weak<Forgetful>>>,
}

impl InPart {
    fn of(place: &Place, store: Store) -> Arc<dyn Subject> {
        let prefix = format!("/convicted-{}", &ClaimId::new().to_string()[..8]);
        let options = ZkOptions::new(place.hosts()).prefix(prefix).session_timeout(SESSION);
        let cutter = Arc::new(Cutter { server: place.server.saboteur(), clients: Mutex::default() });
        Arc::new(Self { store, options, cutter })
    }
}

#[async_trait]
impl Subject for InPart {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        if self.store == Store::Sound {
            return Ok(Arc::new(ZkBackend::connect(self.options.clone()).await?));
        }
        let client = Arc::new(Forgetful::connect(self.options.clone()).await?);
        self.cutter.clients.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&client));
        Ok(client)
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::clone(&self.cutter) as Arc<dyn Saboteur>)
    }

    fn session_timeout(&self) -> Option<Duration> {
        Some(SESSION)
    }
}

#[async_trait]
impl Saboteur for Cutter {
    fn server(&self) -> String {
        self.server.server()
    }

    fn can(&self, hurt: Hurt) -> bool {
        hurt == Hurt::Cut
    }

    async fn heal(&self) -> Sabotage {
        self.server.heal().await
    }

    async fn cut(&self) -> Sabotage {
        self.server.cut().await?;
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for client in clients.iter().filter_map(Weak::upgrade) {
            client.reconnect().await.map_err(|source| SabotageError::Failed {
                what: "serve a new session",
                server: self.server(),
                source,
            })?;
        }
        Ok(())
    }
}

/// A run that goes on for that long, or until something is broken.
async fn judged(store: &Arc<dyn Subject>, length: Duration) -> Outcome {
    let options = Options::seeded(7).lasting(length);
    let outcome = run(store, &options, |_, _| {}).await.expect("a run");
    let cuts = outcome.figures.faults.get("server: cut connections").copied().unwrap_or_default();
    assert!(cuts > 0 && outcome.figures.grants > 10, "{}", outcome.figures);
    outcome
}

fn shown(outcome: &Outcome) -> String {
    let violation = Judge::smallest(&outcome.violations);
    let shown = violation.map(|violation| violation.timeline(&outcome.history).to_string());
    format!("{}\n{}", outcome.figures, shown.unwrap_or_else(|| "nothing broken".to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_end_with_their_connection_are_convicted() {
    let Some(place) = ONE.alone(&[Hurt::Cut]).await else { return };
    let [sound, forgetful] = [Store::Sound, Store::Forgetful].map(|store| InPart::of(&place, store));
    // The sound one has one round. The other runs until it is convicted, which is mostly in its first.
    let (sound, forgetful) = tokio::join!(judged(&sound, SESSION), judged(&forgetful, 2 * PATIENCE));
    assert!(sound.violations.is_empty(), "{}", shown(&sound));
    let two_holders = |violation: &Violation| violation.broken == Broken::TwoHolders;
    assert!(forgetful.violations.iter().any(two_holders), "{}", shown(&forgetful));
}
