//! ZooKeeper.

use crate::admin::{Admin, unknown};
use crate::jute::{self, Session};
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup, hold_all};
use crate::way::Way;
use async_trait::async_trait;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tenure_conformance::proxy::Proxy;
use tenure_conformance::saboteur::{Hurt, Injection};
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use tokio::net::TcpStream;
use url::Url;

/// One ZooKeeper server, alone or in an ensemble.
#[derive(Debug)]
pub(crate) struct Zookeeper(Option<Place>);

/// A server's place in an ensemble.
#[derive(Debug)]
pub(crate) struct Place {
    /// Counted from one.
    pub(crate) id: usize,
    /// For clients.
    pub(crate) port: u16,
    /// Where this one finds every one, itself too.
    pub(crate) servers: Vec<String>,
}

impl Zookeeper {
    pub(crate) fn alone() -> Self {
        Self(None)
    }

    pub(crate) fn member(place: Place) -> Self {
        Self(Some(place))
    }

    /// The settings of a program. An ensemble's ports come with its servers.
    fn settings(&self, home: &Path, port: u16) -> String {
        let servers = match &self.0 {
            Some(place) => place.servers.join("\n"),
            None => format!("clientPort={port}\nclientPortAddress=127.0.0.1"),
        };
        let data = home.join("data");
        let extra = SETTINGS.join("\n");
        format!(
            "tickTime={TICK}\nmaxClientCnxns={CONNECTIONS}\n{extra}\ninitLimit={INIT}\nsyncLimit={SYNC}\n\
             dataDir={}\nadmin.enableServer=false\n{servers}\n",
            data.display()
        )
    }
}

/// The tick is short, so that sessions may be: the server expires them by whole ticks.
const TICK: u32 = 200;
/// How many ticks a member may need to catch up with its leader.
const INIT: u32 = 50;
/// How many ticks a member may be behind its leader before it is given up: four seconds, because a busy machine may stand
/// still for two.
const SYNC: u32 = 20;
/// The shortest and the longest session.
const SETTINGS: [&str; 2] = ["minSessionTimeout=400", "maxSessionTimeout=600000"];
/// Connections that one address may have.
const CONNECTIONS: u32 = 200;

/// Starts sooner, at the cost of a speed that no test needs; leaves nothing outside its directory; and takes empty
/// containers away all the time, not once a minute, so that whatever is tested meets that. Does not wait for the disk, as
/// no server here does: see `postgres.rs`.
const JAVA: [&str; 7] = [
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.forceSync=no",
    "-Dznode.container.checkIntervalMs=20",
    "-Dznode.container.maxPerMinute=60000",
];

#[async_trait]
impl Recipe for Zookeeper {
    fn family(&self) -> &'static str {
        "zookeeper"
    }

    fn image(&self) -> &'static str {
        "zookeeper:3.8"
    }

    fn port(&self) -> u16 {
        2181
    }

    fn fixed_port(&self) -> Option<u16> {
        self.0.as_ref().map(|place| place.port)
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        let request = image
            .with_env_var("ZOO_INIT_LIMIT", INIT.to_string())
            .with_env_var("ZOO_SYNC_LIMIT", SYNC.to_string())
            .with_env_var("ZOO_TICK_TIME", TICK.to_string())
            .with_env_var("ZOO_MAX_CLIENT_CNXNS", CONNECTIONS.to_string())
            .with_env_var("ZOO_ADMINSERVER_ENABLED", "false")
            .with_env_var("ZOO_CFG_EXTRA", SETTINGS.join(" "))
            .with_env_var("SERVER_JVMFLAGS", JAVA.join(" "));
        match &self.0 {
            Some(place) => request
                .with_env_var("ZOO_MY_ID", place.id.to_string())
                .with_env_var("ZOO_SERVERS", place.servers.join(" ")),
            None => request,
        }
    }

    /// The program is Java's; the server's code must be there too.
    fn program(&self) -> Result<PathBuf, String> {
        code()?;
        find("java")
    }

    fn prepare(&self, setup: &Setup<'_>) -> io::Result<()> {
        let data = setup.home.join("data");
        fs::create_dir(&data)?;
        match &self.0 {
            Some(place) => fs::write(data.join("myid"), place.id.to_string()),
            None => Ok(()),
        }
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        let mut command = (setup.command)(setup.program);
        let configuration = setup.home.join("zoo.cfg");
        fs::write(&configuration, self.settings(setup.home, port))?;
        command.args(JAVA).args(["-cp", &code().map_err(io::Error::other)?]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(configuration);
        Ok(command)
    }

    /// Its numbers of transactions, which are tokens, are in its data: without them another ensemble begins.
    fn may_wipe(&self) -> bool {
        false
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("zookeeper://{address}")
    }

    fn may_proxy(&self, url: &Url) -> bool {
        // Of several hosts one proxy could show only one.
        url.host_str().is_some_and(|host| !host.contains(','))
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        let answer = jute::ask(admin.address, "srvr").await?;
        // A member serves when enough others run, and they may be started after it.
        let waits = self.0.is_some() && answer.contains("not currently serving");
        if answer.contains("Mode:") || waits { Ok(()) } else { Err(io::Error::other(answer)) }
    }

    fn hurts(&self, _: &Way) -> &'static [Hurt] {
        &[Hurt::ExpireSessions, Hurt::FillConnections]
    }

    async fn inject(&self, admin: &Admin<'_>, Injection { hurt, .. }: Injection) -> io::Result<()> {
        if hurt != Hurt::ExpireSessions {
            return Err(unknown(hurt));
        }
        // The server told each client its session's secret, and the proxy heard it: take the session over, and end it.
        let connections = admin.proxy.map(Proxy::connections).unwrap_or_default();
        for session in connections.iter().filter_map(|connection| Session::read(&connection.opening())) {
            end(admin.address, &session).await?;
        }
        Ok(())
    }

    async fn hold(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<Held> {
        if hurt != Hurt::FillConnections {
            return Err(unknown(hurt));
        }
        let greet = async |stream: TcpStream| {
            // Sessions long enough that the server does not end them first.
            let opened = jute::open(stream, Duration::from_mins(1), None).await?;
            Ok(opened.map(|(stream, _)| stream))
        };
        hold_all(admin.address, greet).await
    }
}

/// Ends a session as its own client would, by taking it over on another connection and closing it there. `opening` is
/// what the server said first to the client: [`Connection::opening`](tenure_conformance::proxy::Connection::opening).
///
/// # Errors
///
/// If it opened no session there, or the server cannot be reached.
pub async fn end_session(server: SocketAddr, opening: &[u8]) -> io::Result<()> {
    let session = Session::read(opening).ok_or_else(|| io::Error::other("no session was opened"))?;
    end(server, &session).await
}

/// Ends a session, asking until the server has ended it. One whose client is just now going from one member to another,
/// or closing it, makes the server hang up instead. How long this may take is bounded by who gives the order.
async fn end(address: SocketAddr, session: &Session) -> io::Result<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    loop {
        match jute::close(address, session).await {
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            ended => return ended,
        }
    }
}

/// Where the server's code is: Debian's, whose archive names what it needs, or a distribution of Apache's.
fn code() -> Result<String, String> {
    let debian = Path::new("/usr/share/java/zookeeper.jar");
    if debian.is_file() {
        return Ok(debian.display().to_string());
    }
    let script = find("zkServer.sh").map_err(|_| "no ZooKeeper on this machine".to_owned())?;
    let script = script.canonicalize().map_err(|error| error.to_string())?;
    let root = script.parent().and_then(Path::parent).ok_or("no ZooKeeper around its zkServer.sh")?;
    Ok(format!("{}/lib/*", root.display()))
}
