//! TLS, and certificates of clients.

use crate::{RELEASED, claim, granted, server::Server};
use tenure_core::{Backend, Error};
use tenure_nats::{NatsBackend, NatsOptions};
use tenure_testbed::certify;

#[tokio::test]
async fn both_sides_need_a_certificate_that_the_other_trusts() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    for name in ["server", "client", "stranger"] {
        certify(directory.path(), name);
    }
    let lines = format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        at("server.pem"),
        at("server.key"),
        at("client.pem")
    );
    let Some(server) = Server::with(&lines).await else { return };

    let of = |ca: &str, own: &str| {
        let own = format!("tls_cert={}&tls_key={}", at(&format!("{own}.pem")), at(&format!("{own}.key")));
        let url = format!("nats+tls://{}/locks?tls_ca={}&{own}", server.host(), at(ca));
        NatsOptions::from_url(&url).unwrap()
    };
    let backend = NatsBackend::connect(of("server.pem", "client")).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);

    let plain = server.options();
    for options in [of("stranger.pem", "client"), plain] {
        let error = server.refuses(options).await;
        let is_named = error.to_string().contains("UnknownIssuer");
        assert!(matches!(error, Error::Store { .. }) && is_named, "{error:?}");
    }
    // Whether or not the server is up.
    let missing = server.options().tls().tls_ca(at("nowhere.pem"));
    let error = server.refuses(missing).await;
    assert!(matches!(error, Error::InvalidOption { option: "tls_ca", .. }), "{error:?}");
    let without = server.options().tls().tls_ca(at("server.pem"));
    for options in [without, of("server.pem", "stranger")] {
        // A server refuses a client's certificate after the handshake, and the client may only see the connection end.
        let error = server.refuses(options).await;
        assert!(matches!(error, Error::Store { .. } | Error::Unavailable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn certificates_without_tls_are_refused() {
    for parameter in ["tls_ca=a.pem", "tls_cert=a.pem&tls_key=a.key"] {
        let options = NatsOptions::from_url(&format!("nats://localhost/locks?{parameter}")).unwrap();
        let error = NatsBackend::connect(options).await.unwrap_err();
        assert!(error.to_string().contains("needs TLS"), "{error}");
    }
}
