//! A saboteur made of two closures.

use super::{Hurt, Injection, Sabotage, SabotageError, Saboteur};
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use std::{error::Error, fmt, sync::Arc};
use tokio::sync::Mutex;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;
type Action = Box<dyn Fn() -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A [`Saboteur`] that starts a server with one closure and stops it with another. It offers [`Hurt::Kill`].
///
/// # Examples
///
/// ```
/// use std::{error::Error, process::Stdio};
/// use tenure_conformance::saboteur::StartStop;
/// use tokio::process::Command;
///
/// async fn docker(action: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
///     let done = Command::new("docker").args([action, "my-etcd"]).stdout(Stdio::null()).status().await?;
///     if done.success() { Ok(()) } else { Err(format!("docker {action}: {done}").into()) }
/// }
///
/// let saboteur = StartStop::new("etcd", || docker("start"), || docker("kill"));
/// ```
pub struct StartStop {
    server: String,
    start: Action,
    stop: Action,
    network: Option<Arc<dyn Saboteur>>,
    runs: Mutex<bool>,
}

impl StartStop {
    /// Makes a saboteur of a running server.
    ///
    /// `start` starts the server at the same address, with the data that it had, and returns when it answers. It also
    /// succeeds if the server runs already. `stop` kills the server, without a chance to clean up, and returns when
    /// connections to it are refused.
    pub fn new<Starting, Stopping>(
        server: impl Into<String>,
        start: impl Fn() -> Starting + Send + Sync + 'static,
        stop: impl Fn() -> Stopping + Send + Sync + 'static,
    ) -> Self
    where
        Starting: Future<Output = Outcome> + Send + 'static,
        Stopping: Future<Output = Outcome> + Send + 'static,
    {
        Self {
            server: server.into(),
            start: Box::new(move || Box::pin(start())),
            stop: Box::new(move || Box::pin(stop())),
            network: None,
            runs: Mutex::new(true),
        }
    }

    /// Adds the [faults of the network](Hurt::NETWORK), for instance with a `Proxy` between the clients and the server.
    #[must_use]
    pub fn behind(self, network: Arc<dyn Saboteur>) -> Self {
        Self { network: Some(network), ..self }
    }

    fn network(&self, hurt: Hurt) -> Option<&Arc<dyn Saboteur>> {
        self.network.as_ref().filter(|network| Hurt::NETWORK.contains(&hurt) && network.can(hurt))
    }

    async fn start(&self, runs: &mut bool) -> Sabotage {
        (self.start)().await.map_err(|source| self.failed("start", source))?;
        *runs = true;
        Ok(())
    }

    async fn stop(&self, runs: &mut bool) -> Sabotage {
        *runs = false;
        (self.stop)().await.map_err(|source| self.failed("stop", source))
    }

    fn failed(&self, what: &str, source: Box<dyn Error + Send + Sync>) -> SabotageError {
        SabotageError::Failed { what: what.to_owned(), server: self.server(), source }
    }
}

#[async_trait]
impl Saboteur for StartStop {
    fn server(&self) -> String {
        self.server.clone()
    }

    fn can(&self, hurt: Hurt) -> bool {
        hurt == Hurt::Kill || self.network(hurt).is_some()
    }

    async fn inject(&self, injection: Injection) -> Sabotage {
        match self.network(injection.hurt) {
            Some(network) => network.inject(injection).await,
            None if injection.hurt == Hurt::Kill => {
                let mut runs = self.runs.lock().await;
                if *runs { self.stop(&mut runs).await } else { Ok(()) }
            }
            None => self.cannot(injection.hurt),
        }
    }

    async fn undo(&self, hurt: Hurt) -> Sabotage {
        match self.network(hurt) {
            Some(network) => network.undo(hurt).await,
            None if hurt == Hurt::Kill => {
                let mut runs = self.runs.lock().await;
                if *runs { Ok(()) } else { self.start(&mut runs).await }
            }
            None => Ok(()),
        }
    }

    async fn mend(&self) -> Sabotage {
        match &self.network {
            Some(network) => network.mend().await,
            None => Ok(()),
        }
    }

    async fn heal(&self) -> Sabotage {
        self.undo(Hurt::Kill).await?;
        match &self.network {
            Some(network) => network.heal().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for StartStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartStop")
            .field("server", &self.server)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The actions, in order.
    type Done = Arc<Mutex<Vec<&'static str>>>;

    fn noting(done: &Done, what: &'static str) -> impl Fn() -> futures_util::future::Ready<Outcome> + use<> {
        let done = Arc::clone(done);
        move || {
            done.lock().unwrap().push(what);
            futures_util::future::ready(Ok(()))
        }
    }

    #[derive(Debug)]
    struct Network(Done);

    #[async_trait]
    impl Saboteur for Network {
        fn server(&self) -> String {
            "the network".to_owned()
        }

        fn can(&self, hurt: Hurt) -> bool {
            matches!(hurt, Hurt::Cut | Hurt::Freeze)
        }

        async fn inject(&self, _: Injection) -> Sabotage {
            self.0.lock().unwrap().push("cut");
            Ok(())
        }

        async fn undo(&self, _: Hurt) -> Sabotage {
            Ok(())
        }

        async fn heal(&self) -> Sabotage {
            self.0.lock().unwrap().push("heal");
            Ok(())
        }
    }

    #[tokio::test]
    async fn server_is_stopped_and_started_once_each() {
        let done = Done::default();
        let saboteur = StartStop::new("etcd", noting(&done, "start"), noting(&done, "stop"));
        assert!(
            saboteur.can(Hurt::Kill) && Hurt::ALL.iter().filter(|hurt| saboteur.can(**hurt)).count() == 1
        );
        saboteur.heal().await.unwrap();
        saboteur.hurt(Hurt::Kill).await.unwrap();
        saboteur.hurt(Hurt::Kill).await.unwrap();
        saboteur.heal().await.unwrap();
        saboteur.heal().await.unwrap();
        assert_eq!(*done.lock().unwrap(), ["stop", "start"]);
        saboteur.restart().await.unwrap();
        saboteur.hurt(Hurt::Kill).await.unwrap();
        saboteur.restart().await.unwrap();
        assert_eq!(done.lock().unwrap()[2..], ["stop", "start", "stop", "start"]);
        let cut = saboteur.hurt(Hurt::Cut).await.unwrap_err();
        assert!(matches!(cut, SabotageError::CannotHurt { hurt: Hurt::Cut, .. }), "{cut}");
    }

    #[tokio::test]
    async fn server_that_did_not_start_is_started_again_when_healed() {
        let done = Done::default();
        let (start, tries) = (noting(&done, "start"), Arc::clone(&done));
        let start = move || {
            let first = tries.lock().unwrap().len() < 2;
            let started = start();
            async move { if first { Err("the port is taken".into()) } else { started.await } }
        };
        let saboteur = StartStop::new("etcd", start, noting(&done, "stop"));
        let failed = saboteur.restart().await.unwrap_err();
        assert_eq!(failed.to_string(), "etcd: start failed: the port is taken");
        saboteur.heal().await.unwrap();
        assert_eq!(*done.lock().unwrap(), ["stop", "start", "start"]);
    }

    #[tokio::test]
    async fn network_adds_its_own_faults_alone() {
        let done = Done::default();
        let saboteur = StartStop::new("etcd", noting(&done, "start"), noting(&done, "stop"));
        let saboteur = saboteur.behind(Arc::new(Network(Arc::clone(&done))));
        assert!(saboteur.can(Hurt::Kill) && saboteur.can(Hurt::Cut));
        assert!(
            !saboteur.can(Hurt::Refuse) && !saboteur.can(Hurt::Freeze),
            "no faults of the network without a network"
        );
        saboteur.hurt(Hurt::Cut).await.unwrap();
        saboteur.hurt(Hurt::Kill).await.unwrap();
        saboteur.heal().await.unwrap();
        assert_eq!(*done.lock().unwrap(), ["cut", "stop", "start", "heal"]);
    }
}
