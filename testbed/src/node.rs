//! One server process as clients see it: behind its proxy, at one address for good.

use crate::admin::Admin;
use crate::engine::{Engine, Given};
use crate::recipe::{Held, Recipe};
use crate::secret::Secret;
use crate::way::Way;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tenure_conformance::proxy::Proxy;
use tenure_conformance::saboteur::{Hurt, Injection};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

/// How long a server may take to answer after it was started. One that has ended is noticed at once, so this is only for
/// one that hangs. An empty MySQL was seen to take more than a minute.
const PATIENCE: Duration = Duration::from_mins(5);

/// An administrator's order is carried out quickly, unless the server hangs.
const ORDERED: Duration = Duration::from_secs(20);

/// To take what a server has is up to three hundred connections, or a second for each table and each of its triggers, and
/// ten for a lock.
const TAKING: Duration = Duration::from_mins(1);

/// A server, what runs it, and the proxy in front of it.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its name, for people.
    pub(crate) name: String,
    recipe: Arc<dyn Recipe>,
    pub(crate) way: Way,
    /// The URL from the environment.
    given: Option<Secret>,
    /// `None` where a proxy would be seen: TLS, several hosts.
    pub(crate) proxy: Option<Proxy>,
    direct: std::sync::Mutex<SocketAddr>,
    pub(crate) state: Mutex<State>,
}

/// What happens to a server, one thing at a time.
#[derive(Debug)]
pub(crate) struct State {
    /// `None` once it has been stopped for good.
    engine: Option<Box<dyn Engine>>,
    /// What is done to it and not undone yet.
    pub(crate) hurts: BTreeSet<Hurt>,
    held: BTreeMap<Hurt, Held>,
}

impl Node {
    /// A server that the environment names. Clients reach it through a proxy, unless TLS or several hosts would reveal one.
    pub(crate) async fn given(
        name: String,
        recipe: Arc<dyn Recipe>,
        way: Way,
        url: String,
        parsed: &Url,
    ) -> io::Result<Self> {
        let host = parsed.host_str().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no host"))?;
        let port = parsed.port().unwrap_or(recipe.port());
        let address = tokio::net::lookup_host((host.trim_matches(['[', ']']), port))
            .await?
            .next()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))?;
        let proxy = if recipe.may_proxy(parsed) { Some(Proxy::start(address).await?) } else { None };
        Self::serve(name, recipe, way, Box::new(Given(address)), proxy, Some(Secret(url))).await
    }

    /// Waits until what was started or named answers.
    pub(crate) async fn serve(
        name: String,
        recipe: Arc<dyn Recipe>,
        way: Way,
        engine: Box<dyn Engine>,
        proxy: Option<Proxy>,
        given: Option<Secret>,
    ) -> io::Result<Self> {
        let direct = std::sync::Mutex::new(engine.address());
        let state = State { engine: Some(engine), hurts: BTreeSet::new(), held: BTreeMap::new() };
        let node = Self { name, recipe, way, given, proxy, direct, state: Mutex::new(state) };
        let ready = node.ready(&mut *node.state.lock().await).await;
        if let Err(error) = ready {
            node.stop().await?;
            return Err(error);
        }
        Ok(node)
    }

    /// The address that clients use.
    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy.as_ref().map_or_else(|| self.direct_address(), Proxy::address)
    }

    /// The address past the proxy. It changes with a restart in a container.
    pub(crate) fn direct_address(&self) -> SocketAddr {
        *self.direct.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The URL that clients use.
    pub(crate) fn url(&self) -> String {
        match (&self.given, &self.proxy) {
            (None, _) => self.recipe.url(self.address()),
            (Some(Secret(url)), Some(proxy)) => moved(url, proxy.address()),
            (Some(Secret(url)), None) => url.clone(),
        }
    }

    /// The URL past the proxy. It changes with a restart in a container.
    pub(crate) fn direct_url(&self) -> String {
        match &self.given {
            Some(Secret(url)) => url.clone(),
            None => self.recipe.url(self.direct_address()),
        }
    }

    /// Whether we started it.
    fn is_ours(&self) -> bool {
        !matches!(self.way, Way::Environment { .. })
    }

    /// Whether it can be hurt so.
    pub(crate) fn can(&self, hurt: Hurt) -> bool {
        match hurt {
            Hurt::Freeze => self.is_ours(),
            Hurt::Kill => self.is_ours() && self.recipe.may_restart(),
            Hurt::Wipe => self.can(Hurt::Kill) && self.recipe.may_wipe(),
            hurt if Hurt::NETWORK.contains(&hurt) => self.proxy.is_some(),
            Hurt::ClockAhead | Hurt::ClockBack => matches!(self.way, Way::Local { settable: true, .. }),
            Hurt::LoseEnds => self.proxy.is_some() && !self.recipe.ends().is_empty(),
            hurt => self.recipe.hurts(&self.way).contains(&hurt),
        }
    }

    /// Whether this hurt is something that is held against others.
    pub(crate) fn is_held(&self, hurt: Hurt) -> bool {
        self.recipe.is_held(hurt)
    }

    /// The words with which its clients end a transaction that they began in an earlier message.
    pub(crate) fn ends(&self) -> &'static [&'static str] {
        self.recipe.ends()
    }

    /// The access of its administrator at this address.
    pub(crate) fn admin(&self, address: SocketAddr) -> Admin<'_> {
        Admin { address, url: self.admin_url(address), proxy: self.proxy.as_ref() }
    }

    /// The URL of its administrator at this address.
    pub(crate) fn admin_url(&self, address: SocketAddr) -> String {
        match &self.given {
            Some(Secret(url)) => url.clone(),
            None => self.recipe.admin_url(address),
        }
    }

    /// Waits until the server answers.
    pub(crate) async fn ready(&self, state: &mut State) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let admin = self.admin(state.engine()?.address());
            let error = match timeout(Duration::from_secs(5), self.recipe.ready(&admin)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            if let Some(reason) = state.engine_mut()?.ended().await {
                return Err(io::Error::other(reason));
            }
            if Instant::now() > deadline || !self.is_ours() {
                return Err(error);
            }
            sleep(Duration::from_millis(25)).await;
        }
    }

    /// Has the server's administrator inject a fault.
    pub(crate) async fn inject(&self, state: &State, injection: Injection) -> io::Result<()> {
        let admin = self.admin(state.engine()?.address());
        within(ORDERED, self.recipe.inject(&admin, injection)).await
    }

    /// Has the server's administrator undo a fault.
    pub(crate) async fn undo(&self, state: &State, hurt: Hurt) -> io::Result<()> {
        let admin = self.admin(state.engine()?.address());
        within(ORDERED, self.recipe.undo(&admin, hurt)).await
    }

    /// Takes the server's last connections, or something that is tenure's.
    pub(crate) async fn take(&self, state: &mut State, hurt: Hurt) -> io::Result<()> {
        if !state.held.contains_key(&hurt) {
            let admin = self.admin(state.engine()?.address());
            let held = within(TAKING, self.recipe.hold(&admin, hurt)).await?;
            state.held.insert(hurt, held);
        }
        Ok(())
    }

    /// Gives them back.
    pub(crate) async fn free(&self, state: &mut State, hurt: Hurt) -> io::Result<()> {
        match state.held.remove(&hurt) {
            Some(held) => within(ORDERED, self.recipe.free(held)).await,
            None => Ok(()),
        }
    }

    /// Kills the server for good and removes what it left. Hurting it fails from now on.
    pub(crate) async fn stop(&self) -> io::Result<()> {
        let engine = self.state.lock().await.engine.take();
        match engine {
            Some(engine) => engine.remove().await,
            None => Ok(()),
        }
    }

    /// What the restarted server's address is now is where the proxy leads.
    pub(crate) fn follow(&self, address: SocketAddr) {
        *self.direct.lock().unwrap_or_else(PoisonError::into_inner) = address;
        if let Some(proxy) = &self.proxy {
            proxy.set_upstream(address);
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.way)
    }
}

impl State {
    /// The server has ended, and with it what it gave.
    pub(crate) fn forget_held(&mut self) {
        self.held.clear();
    }

    pub(crate) fn engine(&self) -> io::Result<&dyn Engine> {
        self.engine.as_deref().ok_or_else(stopped)
    }

    pub(crate) fn engine_mut(&mut self) -> io::Result<&mut Box<dyn Engine>> {
        self.engine.as_mut().ok_or_else(stopped)
    }
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the server has been stopped for good")
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The same URL at another address.
fn moved(url: &str, address: SocketAddr) -> String {
    // It has been parsed before, has a host, and an IP address is always a valid one.
    let Ok(mut url) = Url::parse(url) else { return url.to_owned() };
    let _ = url.set_host(Some(&address.ip().to_string()));
    let _ = url.set_port(Some(address.port()));
    url.into()
}
