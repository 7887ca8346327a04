//! Servers that speak TLS: one, several, and those that name others.

use crate::{claim, granted, input::refusal_with, server::Server, until, waits};
use std::{
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};
use tempfile::TempDir;
use tenure_conformance::{
    Proxied,
    faults::{self, Options},
    proxy::Proxy,
};
use tenure_core::{Backend, Error, Locks};
use tenure_redis::{RedisBackend, RedisOptions, RedlockBackend, RedlockOptions};
use tenure_testbed::certify;

/// A certificate and its key.
struct Certificate {
    directory: TempDir,
}

impl Certificate {
    /// For this machine by name and by number, signed by itself.
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        certify(directory.path(), "localhost");
        Self { directory }
    }

    fn path(&self, file: &str) -> String {
        self.directory.path().join(file).display().to_string()
    }

    /// The parameters of a URL for a client that trusts this certificate, and presents it too if it has to.
    fn parameters(&self, presents: bool) -> String {
        let (cert, key) = (self.path("localhost.pem"), self.path("localhost.key"));
        let identity = format!("&tls_cert={cert}&tls_key={key}");
        format!("?tls_ca={cert}{}", if presents { &identity } else { "" })
    }

    /// A server's settings, with which it speaks TLS at this port, and demands a client's certificate as by default.
    fn settings(&self, port: u16) -> Vec<(&'static str, String)> {
        vec![
            ("tls-port", port.to_string()),
            ("tls-cert-file", self.path("localhost.pem")),
            ("tls-key-file", self.path("localhost.key")),
            ("tls-ca-cert-file", self.path("localhost.pem")),
        ]
    }

    /// A server that speaks TLS at this port, with further settings.
    fn server(&self, port: u16, more: &[(&'static str, &str)]) -> Server {
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let settings = self.settings(port).into_iter().chain(more);
        let arguments: Vec<String> =
            settings.flat_map(|(name, value)| [format!("--{name}"), value]).collect();
        Server::with(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    tenure_testbed::free_ports(COUNT).unwrap().try_into().unwrap()
}

fn at(url: &str) -> RedisOptions {
    RedisOptions::from_url(url).unwrap()
}

/// A lock is had, refused to another, and handed over when it is released.
async fn is_a_store(one: impl Backend, other: impl Backend, name: &str) {
    let (one, other) = (Locks::new(one), Locks::new(other));
    let guard = one.lock(name).acquire().await.unwrap();
    assert!(other.lock(name).try_acquire().await.unwrap().is_none());
    let (waiter, first) = (waits(other.lock(name)), guard.token());
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.token() > first);
    next.release().await.unwrap();
}

#[tokio::test]
async fn over_tls_and_not() {
    let (certificate, [port]) = (Certificate::make(), free_ports());
    let server = certificate.server(port, &[("tls-auth-clients", "no")]);
    let options = at(&format!("rediss://localhost:{port}{}", certificate.parameters(false)));
    let connect = || async { RedisBackend::connect(options.clone()).await.unwrap() };
    assert_eq!(connect().await.store(), format!("rediss://localhost:{port}/0"));
    is_a_store(connect().await, connect().await, "a").await;

    let (error, text) = refusal_with(at(&format!("rediss://localhost:{port}"))).await;
    assert!(text.contains("with tls_ca"), "{error:?} {text}");
    let (error, text) = refusal_with(at(&format!("rediss://127.0.0.1:{}", server.port))).await;
    assert!(text.contains("write redis:"), "{error:?} {text}");
    let (error, text) = refusal_with(at(&format!("redis://localhost:{port}"))).await;
    assert!(text.contains("rediss:"), "{error:?} {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_is_kept_while_the_network_fails() {
    let (certificate, [port]) = (Certificate::make(), free_ports());
    let _server = certificate.server(port, &[("tls-auth-clients", "no")]);
    let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await.unwrap();
    let url = format!("rediss://localhost:{}{}", proxy.address().port(), certificate.parameters(false));
    let subject = Proxied::new(proxy, move || RedisBackend::connect(at(&url)));
    faults::check(&(Arc::new(subject) as _), &Options::of_the_day().unwrap().short()).await.unwrap();
}

#[tokio::test]
async fn redlock_over_tls() {
    let (certificate, ports) = (Certificate::make(), free_ports::<3>());
    let _servers = ports.map(|port| certificate.server(port, &[]));
    let url = format!("rediss+redlock://{}", ports.map(|port| format!("localhost:{port}")).join(","));
    let options = |parameters: &str| RedlockOptions::from_url(&format!("{url}{parameters}")).unwrap();
    let connect = || async { RedlockBackend::connect(options(&certificate.parameters(true))).await.unwrap() };
    assert_eq!(connect().await.store(), format!("{url}/0"));
    is_a_store(connect().await, connect().await, "a").await;
    let error = RedlockBackend::connect(options("")).await.unwrap_err();
    let text = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(text.contains("with tls_ca"), "{error} {text}");
    // Each demands a client's certificate, as redis-server does by default.
    let one = at(&format!("rediss://localhost:{}{}", ports[0], certificate.parameters(false)));
    let (error, text) = refusal_with(one).await;
    assert!(matches!(error, Error::Unavailable { .. }) && text.contains("tls_cert"), "{error:?} {text}");
}

/// The nodes know each other, and are known, by numbers and by a name; both are in the certificate.
#[tokio::test]
async fn a_cluster_over_tls() {
    let (certificate, ports, buses) = (Certificate::make(), free_ports::<3>(), free_ports::<3>());
    let nodes = [0, 1, 2].map(|number| {
        let bus = buses[number].to_string();
        let settings = [
            ("cluster-enabled", "yes"),
            ("tls-cluster", "yes"),
            ("cluster-port", &*bus),
            ("cluster-announce-hostname", "localhost"),
        ];
        certificate.server(ports[number], &settings)
    });
    for (number, node) in nodes.iter().enumerate() {
        let (first, next) = (16_384 * number / 3, 16_384 * (number + 1) / 3);
        node.tell::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        node.tell::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(next - 1).to_string()]);
        nodes[0].tell::<()>(&[
            "CLUSTER",
            "MEET",
            "127.0.0.1",
            &ports[number].to_string(),
            &buses[number].to_string(),
        ]);
    }
    let agree = |node: &Server| {
        node.tell::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
            && node.tell::<String>(&["CLUSTER", "NODES"]).matches(",localhost").count() == 3
    };
    until("the nodes agree", || nodes.iter().all(agree)).await;
    let url = format!("rediss+cluster://localhost:{}", ports[0]);
    let options = at(&format!("{url}{}", certificate.parameters(true)));
    let connect = || async { RedisBackend::connect(options.clone()).await.unwrap() };
    let backend = connect().await;
    assert_eq!(backend.store(), url);
    let slot_of = |name: &str| nodes[0].tell::<usize>(&["CLUSTER", "KEYSLOT", &format!("tenure:{name}")]);
    for node in 0..3 {
        let name =
            (0..1000).map(|number| format!("name {number}")).find(|name| slot_of(name) * 3 / 16_384 == node);
        is_a_store(connect().await, backend.clone(), &name.unwrap()).await;
    }
    // The node that had the slot leads on to the other's port for TLS.
    let moved =
        (0..1000).map(|number| format!("moved {number}")).find(|name| slot_of(name) * 3 / 16_384 == 0);
    let (moved, id) = (moved.unwrap(), nodes[1].tell::<String>(&["CLUSTER", "MYID"]));
    for node in [1, 0] {
        nodes[node].tell::<()>(&["CLUSTER", "SETSLOT", &slot_of(&moved).to_string(), "NODE", &id]);
    }
    granted(&backend, &claim(&moved)).await;
    assert_eq!(nodes[1].tell::<Vec<String>>(&["KEYS", &format!("tenure:{moved}")]).len(), 1);
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sentinel(directory: &Path, settings: &[(&'static str, String)]) -> Killed {
    let lines = settings.iter().map(|(name, value)| format!("{name} {value}\n"));
    std::fs::write(directory.join("sentinel.conf"), lines.collect::<String>()).unwrap();
    let program = std::env::var("TENURE_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let mut command = Command::new(program);
    command.args(["sentinel.conf", "--sentinel"]).current_dir(directory);
    Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[tokio::test]
async fn sentinel_over_tls() {
    let (certificate, [master, port]) = (Certificate::make(), free_ports());
    let server = certificate.server(master, &[("tls-replication", "yes"), ("requirepass", "right")]);
    let directory = tempfile::tempdir().unwrap();
    let watches = [
        ("port", "0".to_owned()),
        ("tls-replication", "yes".to_owned()),
        ("sentinel", format!("monitor tenure 127.0.0.1 {master} 1")),
        ("requirepass", "\"its own\"".to_owned()),
        ("sentinel", "auth-pass tenure right".to_owned()),
    ];
    let settings: Vec<_> = certificate.settings(port).into_iter().chain(watches).collect();
    let _sentinel = sentinel(directory.path(), &settings);
    until("the sentinel listens", || TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    let url = format!("rediss+sentinel://localhost:{port}/tenure");
    let with_password = url.replace("://", "://:right@");
    let password = directory.path().join("password");
    std::fs::write(&password, "its own\n").unwrap();
    std::fs::set_permissions(&password, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let trusted = format!("{with_password}{}", certificate.parameters(true));
    for user in ["", "&sentinel_user=default"] {
        let options = at(&format!("{trusted}&sentinel_password_file={}{user}", password.display()));
        let connect = || async { RedisBackend::connect(options.clone()).await.unwrap() };
        let backend = connect().await;
        assert_eq!(backend.store(), url);
        is_a_store(connect().await, backend.clone(), "a").await;
    }
    let mut connection = server.connection();
    redis::cmd("AUTH").arg("right").exec(&mut connection).unwrap();
    let kept: Vec<String> = redis::cmd("KEYS").arg("tenure:*").query(&mut connection).unwrap();
    assert!(!kept.is_empty(), "the master keeps them");
    // The master's password, which this sentinel refuses.
    let (error, text) = refusal_with(at(&trusted)).await;
    assert!(
        text.contains("no sentinel names the master") && text.contains("authentication failed"),
        "{error:?} {text}"
    );
    assert!(!text.contains("right"), "{text}");
    let (error, text) = refusal_with(at(&with_password)).await;
    assert!(text.contains("no sentinel names the master"), "{error:?} {text}");
}
