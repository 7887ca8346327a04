//! Users, and TLS.

use crate::{
    RELEASED, claim, granted,
    server::{Server, available},
    until,
};
use etcd_client::{Client, ConnectOptions, Permission, PermissionType, RoleRevokePermissionOptions};
use std::{fs, process::Command};
use tenure_core::{Backend, Error};
use tenure_etcd::{EtcdBackend, EtcdOptions};
use tenure_testbed::{certify, claims::said};

async fn refused(options: EtcdOptions, why: &str) {
    let error = EtcdBackend::connect(options).await.unwrap_err();
    let told = said(&error);
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    assert!(told.contains(why), "{why:?} is not in {told:?}");
    assert!(!told.contains("secret"), "{told}");
}

/// Makes a user whose role has the keys below `tenure/`, and turns authentication on.
async fn with_users(mut eyes: Client) {
    eyes.user_add("root", "secret-of-root", None).await.unwrap();
    eyes.user_grant_role("root", "root").await.unwrap();
    eyes.role_add("locks").await.unwrap();
    let locks = Permission::new(PermissionType::Readwrite, "tenure/").with_prefix();
    eyes.role_grant_permission("locks", locks).await.unwrap();
    eyes.user_add("me", "secret", None).await.unwrap();
    eyes.user_grant_role("me", "locks").await.unwrap();
    eyes.auth_enable().await.unwrap();
}

#[tokio::test]
async fn user_needs_password_and_permission() {
    let Some(mut server) = Server::start() else { return };
    with_users(server.eyes().await).await;
    let me = || server.options().user("me", "secret");
    let backend = EtcdBackend::connect(me()).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    refused(server.options(), "USER:PASSWORD@").await;
    refused(server.options().user("me", "secret2"), "refused the user or the password").await;
    refused(server.options().user("nobody", "secret"), "refused the user or the password").await;
    refused(me().prefix("other"), "readwrite").await;
    // It forgets its tokens.
    server.restart();
    until("it is released", async || {
        backend.release(&grant).await.is_ok_and(|released| released == RELEASED)
    })
    .await;
    let mut root = server.eyes_with(ConnectOptions::new().with_user("root", "secret-of-root")).await;
    let all = RoleRevokePermissionOptions::new().with_prefix();
    root.role_revoke_permission("locks", "tenure/", Some(all)).await.unwrap();
    let denied = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(!denied.is_unavailable() && denied.to_string().contains("readwrite"), "{denied}");
}

/// Such a token is over when any user changes, for the server alone.
#[tokio::test]
async fn login_is_renewed_when_users_change() {
    if !available() {
        return;
    }
    let server = Server::with("http", tempfile::tempdir().unwrap(), |directory| {
        let at = |name: &str| directory.path().join(name).display().to_string();
        for arguments in [
            vec!["genrsa".to_owned(), "-out".to_owned(), at("key"), "2048".to_owned()],
            ["rsa", "-in", &at("key"), "-pubout", "-out", &at("public")].map(str::to_owned).to_vec(),
        ] {
            assert!(Command::new("openssl").args(arguments).output().unwrap().status.success());
        }
        let token = format!("jwt,pub-key={},priv-key={},sign-method=RS256,ttl=10m", at("public"), at("key"));
        vec!["--auth-token".to_owned(), token]
    });
    with_users(server.eyes().await).await;
    let backend = EtcdBackend::connect(server.options().user("me", "secret")).await.unwrap();
    let mut root = server.eyes_with(ConnectOptions::new().with_user("root", "secret-of-root")).await;
    for user in ["one", "another"] {
        let grant = granted(&backend, &claim("a")).await;
        root.user_add(user, "secret", None).await.unwrap();
        root.refresh_token().await.unwrap();
        assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    }
}

#[tokio::test]
async fn password_without_users_is_refused() {
    let Some(server) = Server::start() else { return };
    refused(server.options().user("me", "secret"), "authentication is not enabled").await;
}

#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    if !available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for name in ["server", "client", "stranger"] {
        certify(directory.path(), name);
    }
    let server = Server::with("https", directory, |directory| {
        let at = |name: &str| directory.path().join(name).display().to_string();
        let files = ["--cert-file", &at("server.pem"), "--key-file", &at("server.key")];
        let clients = ["--client-cert-auth", "--trusted-ca-file", &at("client.pem")];
        files.into_iter().chain(clients).map(str::to_owned).collect()
    });
    let read = |name: &str| fs::read_to_string(server.directory.path().join(name)).unwrap();
    let trusting = || server.options().tls(read("server.pem"));
    let backend =
        EtcdBackend::connect(trusting().tls_identity(read("client.pem"), read("client.key"))).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    let identity = |options: EtcdOptions| options.tls_identity(read("client.pem"), read("client.key"));
    refused(identity(server.options().tls(read("stranger.pem"))), "TLS handshake failed").await;
    for options in [trusting(), trusting().tls_identity(read("stranger.pem"), read("stranger.key"))] {
        // A server refuses a client's certificate after the handshake, and the client may only see the connection end.
        let error = EtcdBackend::connect(options).await.unwrap_err();
        assert!(matches!(error, Error::Store { .. } | Error::Unavailable { .. }), "{error:?}");
    }
    let plain = EtcdBackend::connect(server.options()).await.unwrap_err();
    assert!(matches!(plain, Error::Unavailable { .. }), "{plain:?}");
}
