//! Encrypted connections, and users whom the servers know.

use crate::{
    HANG, Scene, in_time,
    people::may_only_look,
    server::ONE,
    special::{self, Special},
};
use std::fs;
use tempfile::TempDir;
use tenure_core::{Error, Locks};
use tenure_testbed::{certify, claims::said, free_port};
use tenure_zk::{ZkBackend, ZkOptions};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::spawn_blocking,
};

/// A server with a port for plain connections, one for encrypted ones, and users.
struct Secure {
    server: Special,
    encrypted: String,
    /// The server's certificate, which is its own authority, and the client's with its key.
    authority: String,
    identity: (String, String),
}

impl Secure {
    /// `certified`: whether it wants its clients' certificates too.
    async fn start(certified: bool) -> Option<Self> {
        if !special::available() {
            return None;
        }
        Some(spawn_blocking(move || Self::start_blocking(certified)).await.unwrap())
    }

    fn start_blocking(certified: bool) -> Self {
        let (directory, port) = (tempfile::tempdir().unwrap(), free_port().unwrap());
        for name in ["server", "client"] {
            certify(directory.path(), name);
        }
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let (authority, identity) = (read("server.pem"), (read("client.pem"), read("client.key")));
        fs::write(directory.path().join("both.pem"), read("server.key") + &authority).unwrap();
        let users = "org.apache.zookeeper.server.auth.DigestLoginModule required";
        let users = format!("Server {{ {users} user_me=\"secret\" user_other=\"different\"; }};");
        fs::write(directory.path().join("jaas.conf"), users).unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let configuration = format!(
            "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
             ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
             ssl.clientAuth={}\n",
            at("both.pem"),
            at("client.pem"),
            if certified { "need" } else { "none" },
        );
        let properties = [format!("java.security.auth.login.config={}", at("jaas.conf"))];
        let server = Special::start(directory, &configuration, &properties);
        // It serves plain connections first.
        server.until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { server, encrypted: format!("127.0.0.1:{port}"), authority, identity }
    }

    fn plain(&self) -> ZkOptions {
        ZkOptions::new([self.server.address()])
    }

    /// Through something that lets these connections pass, in their order, and closes the others and all later ones.
    async fn behind(&self, passing: &[bool]) -> ZkOptions {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (host, server) = (listener.local_addr().unwrap().to_string(), self.server.address());
        let passing = passing.to_vec();
        tokio::spawn(async move {
            for passes in passing {
                let (mut client, _) = listener.accept().await.unwrap();
                if passes {
                    let mut server = TcpStream::connect(&server).await.unwrap();
                    tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
                }
            }
        });
        ZkOptions::new([host])
    }

    fn encrypted(&self) -> ZkOptions {
        ZkOptions::new([&self.encrypted]).tls(&self.authority)
    }
}

/// The error about servers that open no session, which comes before the end of the time to connect.
async fn refusal(options: ZkOptions) -> (Error, String) {
    let shown = format!("{options:?}");
    let options = options.connect_timeout(HANG * 2);
    let error = in_time("a refusal", ZkBackend::connect(options)).await.expect_err(&shown);
    let said = said(&error);
    for secret in ["secret", "hunter2", "PRIVATE KEY"] {
        assert!(!format!("{error:?} {error:#?}").contains(secret), "{error:?}");
    }
    (error, said)
}

#[tokio::test]
async fn over_tls() {
    let Some(secure) = Secure::start(true).await else { return };
    let (certificate, key) = &secure.identity;
    let options = secure.encrypted().tls_identity(certificate, key);
    assert!(!format!("{options:?}").contains("PRIVATE KEY"));
    let backend = ZkBackend::connect(options.clone()).await.unwrap();
    let (one, other) = (Locks::new(backend), Locks::new(ZkBackend::connect(options).await.unwrap()));
    assert_eq!(one.store(), format!("zookeeper+tls://{}", secure.encrypted));
    let guard = one.lock("a").acquire().await.unwrap();
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();

    let name = &secure.encrypted.replace("127.0.0.1", "localhost");
    let by_name = ZkOptions::new([name]).tls(&secure.authority).tls_identity(certificate, key);
    ZkBackend::connect(by_name).await.unwrap();

    for (options, why) in [
        (secure.encrypted(), "may require a client certificate"),
        (secure.encrypted().tls(certificate), "certificate that is not trusted"),
    ] {
        let (error, said) = refusal(options).await;
        assert!(matches!(error, Error::Store { .. }) && said.contains(why), "{said}");
    }
    // A plain client on the port for TLS.
    let (error, said) = refusal(ZkOptions::new([&secure.encrypted])).await;
    assert!(matches!(error, Error::Unavailable { .. }) && said.contains("zookeeper+tls:"), "{said}");
    // And the other way round, on a server with TLS and on one without.
    let mut plain = vec![secure.server.address()];
    let scene = Scene::on(&ONE, "encrypted").await;
    plain.extend(scene.iter().map(|scene| scene.hosts[0].clone()));
    for host in plain {
        let (error, said) = refusal(ZkOptions::new([&host]).tls(&secure.authority)).await;
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(said.contains(&host) && said.contains("plain connections"), "{said}");
    }
}

#[tokio::test]
async fn users_whom_the_servers_know() {
    let Some(secure) = Secure::start(false).await else { return };
    let locks = async |options: ZkOptions| Locks::new(ZkBackend::connect(options).await.unwrap());
    let options = secure.plain().sasl("me", "secret");
    assert!(!format!("{options:?}").contains("secret"));
    let mine = locks(options).await;
    let guard = mine.lock("a").acquire().await.unwrap();
    // Every client may look, and only this user may change it.
    for strange in [locks(secure.plain()).await, locks(secure.plain().sasl("other", "different")).await] {
        may_only_look(&strange, &guard, "/tenure/a").await;
    }
    // Another client of this user, over TLS.
    let again = locks(secure.encrypted().sasl("me", "secret")).await;
    assert_eq!(again.force_release("a").await.unwrap().len(), 1);
    let guard = again.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();

    for (user, password) in [("me", "hunter2"), ("nobody", "hunter2"), ("me", "")] {
        let (error, said) = refusal(secure.plain().sasl(user, password)).await;
        assert!(matches!(error, Error::Store { .. }), "{error:?}");
        assert!(said.contains("refused the credentials; check user and password"), "{said}");
    }
}

/// A server that refuses the credentials closes the connection behind its answer, which may be lost with it.
#[tokio::test]
async fn an_answer_that_was_lost_with_its_connection() {
    let Some(secure) = Secure::start(false).await else { return };
    let right = secure.behind(&[false, true, true, true, true, true]).await.sasl("me", "secret");
    ZkBackend::connect(right).await.unwrap();
    let wrong = secure.behind(&[false, true, true, true, true, true]).await.sasl("me", "hunter2");
    let (error, said) = refusal(wrong).await;
    assert!(matches!(error, Error::Store { .. }) && said.contains("refused the credentials"), "{said}");
    // It never comes through, and whether a server runs is told on every other connection.
    let lost =
        secure.behind(&[false, true, false, true, false, true, false, true]).await.sasl("me", "hunter2");
    let (error, said) = refusal(lost).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(said.contains("none opened a session") && said.contains("check user and password"), "{said}");
}

/// Such servers take the session, and never say that they did not check who it is of.
#[tokio::test]
async fn a_server_without_users() {
    let Some(scene) = Scene::on(&ONE, "without").await else { return };
    let (error, said) = refusal(scene.options().sasl("me", "secret")).await;
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    assert!(said.contains("without checking its user"), "{said}");
}

#[tokio::test]
async fn what_is_no_certificate_is_refused_before_anything_is_connected() {
    let directory = TempDir::new().unwrap();
    for name in ["one", "other"] {
        certify(directory.path(), name);
    }
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let (one, its_key, others_key) = (read("one.pem"), read("one.key"), read("other.key"));
    let nowhere = || ZkOptions::new(["127.0.0.1:1"]);
    for (options, option) in [
        (nowhere().tls("no certificate"), "tls_ca"),
        (nowhere().tls(&its_key), "tls_ca"),
        (nowhere().tls_identity(&one, &its_key), "tls_ca"),
        (nowhere().tls(&one).tls_identity(&one, "no key"), "tls_key"),
        (nowhere().tls(&one).tls_identity("no certificate", &its_key), "tls_cert"),
        (nowhere().tls(&one).tls_identity(&one, &others_key), "tls_key"),
        (ZkOptions::new(["[fe80::1%eth0]:2281"]).tls(&one), "hosts"),
        (nowhere().sasl("", "x"), "user"),
        (nowhere().sasl("a\"b", "x"), "user"),
    ] {
        let error = ZkBackend::connect(options).await.unwrap_err();
        assert!(
            matches!(&error, Error::InvalidOption { option: named, .. } if *named == option),
            "{error} does not name {option}"
        );
        assert!(!format!("{error:?} {error:#?}").contains("PRIVATE KEY"), "{error:?}");
    }
}
