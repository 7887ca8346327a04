//! A server to test against.

use crate::assembly::Assembly;
use crate::composition;
use crate::find::{Found, find};
use crate::kind::Kind;
use crate::member::Member;
use crate::node::Node;
use crate::sabotage::MembersSaboteur;
use crate::secret::Secret;
use crate::unavailable::Unavailable;
use crate::way::{Use, Way};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use tenure_conformance::proxy::Proxy;
use tenure_conformance::saboteur::Saboteur;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// A server to test against: running, behind a proxy, and gone with this value.
///
/// It has a runtime of its own, so it may be shared by tests that each have theirs (or a paused clock).
///
/// Dropping it kills the server, removes all that it left, and waits for that. [`stop`](Self::stop) does the same without blocking the thread.
///
/// # Examples
///
/// ```no_run
/// # use tenure_conformance::saboteur::Hurt;
/// # use tenure_testbed::{Kind, Server};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::find(Kind::Redis).await?;
/// println!("testing against {server}");
/// let saboteur = server.saboteur();
/// saboteur.hurt(Hurt::Freeze).await?;
/// // … whatever must hold while the server hangs …
/// saboteur.heal().await?;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    kind: Kind,
    way: Way,
    url: Secret,
    assembly: Arc<Assembly>,
    runtime: Option<Runtime>,
}

impl Server {
    /// A server of this kind, by the ways that `TENURE_TEST_USE` allows.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, what was started is stopped in the background.
    ///
    /// # Errors
    ///
    /// [`Unavailable`], with the reason of every way that was tried.
    pub async fn find(kind: Kind) -> Result<Self, Unavailable> {
        let ways = Use::from_env().map_err(|reason| Unavailable::new(kind).because(reason))?;
        Self::start(kind, ways).await
    }

    /// The same, by these ways, whatever `TENURE_TEST_USE` says.
    ///
    /// # Cancel safety
    ///
    /// As with [`find`](Self::find).
    ///
    /// # Errors
    ///
    /// As of [`find`](Self::find).
    pub async fn start(kind: Kind, ways: Use) -> Result<Self, Unavailable> {
        let failed = move |error: &dyn fmt::Display| Unavailable::new(kind).because(error.to_string());
        let (mut sender, receiver) = oneshot::channel();
        let start = move || {
            let started = Builder::new_multi_thread()
                .worker_threads(2)
                .thread_name("tenure-server")
                .enable_all()
                .build()
                .map_err(|error| failed(&error))
                .and_then(|runtime| {
                    let mut finding = runtime.spawn(find(kind, ways));
                    let found = runtime.block_on(async {
                        tokio::select! {
                            found = &mut finding => found,
                            // Nobody waits for it any more.
                            () = sender.closed() => { finding.abort(); finding.await }
                        }
                    });
                    let Found { way, url, assembly } = found.map_err(|error| failed(&error))??;
                    Ok(Self { kind, way, url, assembly: Arc::new(assembly), runtime: Some(runtime) })
                });
            // One that was there when nobody waited any more ends here, on a thread where that may block.
            let _ = sender.send(started);
        };
        std::thread::Builder::new()
            .name("tenure-start".into())
            .spawn(start)
            .map_err(|error| failed(&error))?;
        receiver.await.unwrap_or_else(|error| Err(failed(&error)))
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How it was found, to be printed.
    #[must_use]
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// The URL for clients. It leads through the proxy and stays the same. It may hold a password.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.0.clone()
    }

    /// The URL past the proxy, for benchmarks. A container has another one after a restart.
    #[must_use]
    pub fn direct_url(&self) -> String {
        if self.assembly.members.is_empty() {
            self.url()
        } else {
            composition::direct_url(&self.assembly, self.kind)
        }
    }

    /// The URL of its administrator, past the proxy, where it is one server: for tests that make users. What the
    /// environment names is given as it was. It may hold a password.
    #[must_use]
    pub fn admin_url(&self) -> String {
        self.single().map_or_else(|| self.url(), |node| node.admin_url(node.direct_address()))
    }

    /// The address of [`url`](Self::url), where it is that of one server. None when there are several, or when the
    /// environment names an ensemble.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.single().map(|node| node.address())
    }

    /// The proxy in front of it. None where a client would notice one (TLS, an ensemble from the environment), and when
    /// there are several: each of the [`members`](Self::members) has its own.
    #[must_use]
    pub fn proxy(&self) -> Option<&Proxy> {
        self.single()?.proxy.as_ref()
    }

    /// The servers that this is made of: one, or those of an ensemble. None when the environment names an ensemble.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.assembly.members.iter().map(|node| Member::new(node, self.runtime().handle())).collect()
    }

    /// What hurts it: an ensemble as a whole.
    #[must_use]
    pub fn saboteur(&self) -> Arc<dyn Saboteur> {
        let assembly = match self.single() {
            Some(node) => Arc::new(Assembly::over(vec![Arc::clone(node)])),
            None => Arc::clone(&self.assembly),
        };
        Arc::new(MembersSaboteur::new(self.to_string(), assembly, self.runtime().handle()))
    }

    /// Kills the server and removes all that it left.
    ///
    /// # Cancel safety
    ///
    /// Once begun it goes on in the background.
    ///
    /// # Errors
    ///
    /// When something could not be removed. What guards the process's end tries again.
    pub async fn stop(self) -> io::Result<()> {
        let assembly = Arc::clone(&self.assembly);
        self.runtime().spawn(async move { assembly.stop().await }).await.map_err(io::Error::other)?
    }

    /// The one server that clients see, if they see one.
    fn single(&self) -> Option<&Arc<Node>> {
        self.assembly.members.first().filter(|_| self.kind.is_single())
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("present until dropped")
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind(), self.way())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("kind", &self.kind()).field("way", self.way()).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let (assembly, (done, wait)) = (Arc::clone(&self.assembly), channel());
        runtime.spawn(async move {
            // A drop has nobody to tell; the guard tries again when this process ends.
            let _ = assembly.stop().await;
            let _ = done.send(());
        });
        // Ends also when the task panics: then its sender is dropped.
        let _ = wait.recv();
        runtime.shutdown_background();
    }
}
