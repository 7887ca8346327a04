//! Encrypted connections: what each mode of the drivers' checks.

use crate::{Backend, Kind, Table, case::cases, claim, granted, lease_rows::Rows, said, until};
use futures_util::FutureExt;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    panic::{AssertUnwindSafe, resume_unwind},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};
use tempfile::TempDir;
use tenure_conformance::{
    Proxied,
    faults::{self, Options},
    proxy::Proxy,
    skip,
};
use tenure_core::Error;
use tenure_testbed::free_port;

cases!("tls":
    each_mode_checks_what_it_says.on(&[Kind::Postgres]).alone(),
    each_mode_for_mariadb_checks_what_it_says.on(&[Kind::Mariadb]),
    contract_is_kept_while_the_network_fails.on(&[Kind::Mariadb]),
    a_stranger_s_authority_is_refused.on(&[Kind::Mysql]),
    a_server_without_tls_is_refused.on(&[Kind::Postgres, Kind::Mariadb]),
);

/// An authority, and a server's certificate of it for `localhost`, and for no number.
struct Certificates(TempDir);

impl Certificates {
    fn make() -> Self {
        const SCRIPT: &str = "
            key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
            openssl req -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem $key
            openssl req -subj /CN=localhost -keyout server.key -out server.csr $key
            echo subjectAltName=DNS:localhost >extensions
            openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                -extfile extensions -out server.pem";
        let this = Self(tempfile::tempdir().unwrap());
        let made = Command::new("sh").args(["-ec", SCRIPT]).current_dir(this.0.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        this
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.path().join(file)).unwrap()
    }

    /// The path of the authority's own certificate, as a URL has it.
    fn authority(&self) -> String {
        let path: &Path = self.0.path();
        path.join("ca.pem").display().to_string()
    }
}

/// A MariaDB server of a case's own, because its certificate is given when it starts. It is ended with this value or with
/// this process.
struct Mariadb {
    port: u16,
    shell: Child,
}

impl Mariadb {
    /// Whether one can be had here. Where `TENURE_TEST_REQUIRE=1`, it must.
    fn is_here() -> bool {
        let found = shell("command -v mariadbd && command -v mariadb-install-db").output().unwrap();
        let here = found.status.success();
        if !here {
            skip("mariadb", "no program mariadbd here for its TLS").unwrap();
        }
        here
    }

    /// In the certificates' directory; it may not answer yet.
    fn start(certificates: &Certificates) -> Self {
        let (home, port) = (certificates.0.path(), free_port().unwrap());
        let file = |option: &str, file: &str| format!("--{option}={}", home.join(file).display());
        // Root must say whom it runs as.
        let user = format!("--user={}", fs::metadata(home).unwrap().uid());
        // A server that starts removes the temporary tables that it finds, of others too.
        let common = ["--no-defaults".to_owned(), file("datadir", "data"), file("tmpdir", "."), user];
        let made = shell(r#"mariadb-install-db "$@""#)
            .args(&common)
            // Otherwise it gives installed files to that user.
            .arg("--rpm")
            .args(["--skip-test-db", "--auth-root-authentication-method=normal"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        // `encrypted` is refused where the connection is not. Root has no password.
        let users = "DROP USER IF EXISTS root@'127.0.0.1';\n\
                     CREATE DATABASE tenure;\n\
                     CREATE USER plain@'%' IDENTIFIED BY 'tenure';\n\
                     CREATE USER encrypted@'%' IDENTIFIED BY 'tenure' REQUIRE SSL;\n\
                     GRANT ALL ON tenure.* TO plain@'%', encrypted@'%';\n";
        fs::write(home.join("users.sql"), users).unwrap();
        let log = fs::File::create(home.join("log")).unwrap();
        // The end of its input ends the server too.
        let shell = shell(r#"mariadbd "$@" </dev/null & cat >/dev/null; kill -9 $!; wait"#)
            .args(&common)
            .args([file("init-file", "users.sql"), format!("--port={port}")])
            // Relative to the data, because a socket's path must be short.
            .args(["--bind-address=127.0.0.1", "--socket=socket", "--pid-file=pid"])
            .args(["--skip-name-resolve", "--innodb-flush-method=nosync"])
            .args([file("ssl-ca", "ca.pem"), file("ssl-cert", "server.pem"), file("ssl-key", "server.key")])
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { port, shell }
    }

    fn url(&self, user: &str) -> String {
        format!("mariadb://{user}:tenure@127.0.0.1:{}/tenure", self.port)
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Finds programs where Debian keeps servers, too.
fn shell(script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("PATH=$PATH:/usr/sbin; {script}"), "mariadb"]);
    shell
}

/// The server's URL by the name that its certificate is for.
fn by_name(url: &str) -> String {
    url.replace("127.0.0.1", "localhost")
}

/// A lock is had and given back over such a connection, or the error says why not.
async fn attempt(table: &Table, url: &str, parameters: &str) -> Result<(), Error> {
    let store = table.options_at(&format!("{url}?{parameters}")).open().await?;
    let grant = granted(&store, &claim("a")).await;
    store.release(&grant).await.unwrap();
    Ok(())
}

/// At once, with what to do, and not as something that may pass.
async fn refused(table: &Table, url: &str, parameters: &str, says: &[&str]) {
    let error = attempt(table, url, parameters).await.expect_err(parameters);
    let said = said(&error);
    assert!(matches!(error, Error::Store { .. }), "{parameters}: {said}");
    for part in says {
        assert!(said.contains(part), "{parameters}: {part:?} is not in {said}");
    }
}

async fn each_mode_checks_what_it_says(table: &Table) {
    let (ours, other) = (Certificates::make(), Certificates::make());
    let mut admin = table.admin().await;
    for (file, pem) in [("tls.pem", ours.read("server.pem")), ("tls.key", ours.read("server.key"))] {
        // In the server's own directory, wherever that is.
        let encoded = format!("SELECT translate(encode('{pem}', 'base64'), E'\\n', '')");
        admin.execute(&format!("COPY ({encoded}) TO PROGRAM 'umask 077; base64 -d > {file}'")).await;
    }
    for setting in ["ssl_cert_file = 'tls.pem'", "ssl_key_file = 'tls.key'", "ssl = on"] {
        admin.execute(&format!("ALTER SYSTEM SET {setting}")).await;
    }
    admin.execute("SELECT pg_reload_conf()").await;
    let url = table.server.url();
    until(async || attempt(table, &url, "sslmode=require").await.is_ok()).await;

    let checked = AssertUnwindSafe(check(table, &ours, &other)).catch_unwind().await;
    // Other cases are for servers without TLS.
    for setting in ["ssl", "ssl_cert_file", "ssl_key_file"] {
        admin.execute(&format!("ALTER SYSTEM RESET {setting}")).await;
    }
    admin.execute("SELECT pg_reload_conf()").await;
    until(async || attempt(table, &url, "sslmode=require").await.is_err()).await;
    checked.unwrap_or_else(|panic| resume_unwind(panic));
}

async fn check(table: &Table, ours: &Certificates, other: &Certificates) {
    let (ca, stranger) = (ours.authority(), other.authority());
    let trusted = |mode: &str| format!("sslmode={mode}&sslrootcert={ca}");
    let untrusted = |mode: &str| format!("sslmode={mode}&sslrootcert={stranger}");
    let number = table.server.url();
    let name = by_name(&number);
    for (url, parameters) in [
        (&number, "sslmode=disable".to_owned()),
        (&number, untrusted("prefer")),
        (&number, trusted("require")),
        (&number, trusted("verify-ca")),
        (&name, trusted("verify-ca")),
        (&name, trusted("verify-full")),
    ] {
        let had = attempt(table, url, &parameters).await;
        had.unwrap_or_else(|error| panic!("{url} {parameters}: {}", said(&error)));
    }
    // Not for this number; not by an authority that is known here.
    refused(table, &number, &trusted("verify-full"), &["127.0.0.1", "localhost", "verify-ca"]).await;
    for mode in ["verify-ca", "verify-full", "require"] {
        refused(table, &name, &untrusted(mode), &["the authority that issued", "sslrootcert"]).await;
    }
    refused(table, &name, "sslmode=verify-ca", &["the authority that issued", "sslrootcert"]).await;

    let encrypted = format!("sslmode=require&application_name={}", table.name);
    let url = format!("{number}?{encrypted}");
    let _store = table.options_at(&url).open().await.unwrap();
    let seen = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{t}' AND ";
    assert!(table.number(&format!("{seen} ssl")).await > 0);
    assert_eq!(table.number(&format!("{seen} NOT ssl")).await, 0);
}

async fn each_mode_for_mariadb_checks_what_it_says(table: &Table) {
    if !Mariadb::is_here() {
        return;
    }
    let (ours, other) = (Certificates::make(), Certificates::make());
    let server = Mariadb::start(&ours);
    let (plain, number) = (server.url("plain"), server.url("encrypted"));
    let name = by_name(&number);
    until(async || attempt(table, &plain, "ssl-mode=disabled").await.is_ok()).await;

    let (ca, stranger) = (ours.authority(), other.authority());
    let trusted = |mode: &str| format!("ssl-mode={mode}&ssl-ca={ca}");
    let untrusted = |mode: &str| format!("ssl-mode={mode}&ssl-ca={stranger}");
    for (url, parameters) in [
        (&number, String::new()),
        (&number, untrusted("preferred")),
        (&number, untrusted("required")),
        (&number, trusted("verify_ca")),
        (&name, trusted("verify_ca")),
        (&name, trusted("verify_identity")),
    ] {
        let had = attempt(table, url, &parameters).await;
        had.unwrap_or_else(|error| panic!("{url} {parameters}: {}", said(&error)));
    }
    // Not without encryption; not for this number; not by an authority that is known here.
    refused(table, &number, "ssl-mode=disabled", &["refused user encrypted"]).await;
    refused(table, &number, &trusted("verify_identity"), &["127.0.0.1", "localhost", "verify_ca"]).await;
    for mode in ["verify_ca", "verify_identity"] {
        for parameters in [untrusted(mode), format!("ssl-mode={mode}")] {
            refused(table, &name, &parameters, &["the authority that issued", "ssl-ca"]).await;
        }
    }
}

async fn contract_is_kept_while_the_network_fails(table: &Table) {
    if !Mariadb::is_here() {
        return;
    }
    let certificates = Certificates::make();
    let server = Mariadb::start(&certificates);
    let proxy = Proxy::start(([127, 0, 0, 1], server.port).into()).await.unwrap();
    let url = format!("mariadb://encrypted:tenure@{}/tenure", proxy.address());
    let parameters = format!("ssl-mode=verify_ca&ssl-ca={}", certificates.authority());
    until(async || attempt(table, &url, &parameters).await.is_ok()).await;
    let options = table.options_at(&format!("{url}?{parameters}"));
    let subject = Proxied::new(proxy, move || options.clone().open());
    faults::check(&(Arc::new(subject) as _), &Options::of_the_day().unwrap().short()).await.unwrap();
}

/// The server has made a certificate of its own when it was set up.
async fn a_stranger_s_authority_is_refused(table: &Table) {
    let url = table.server.url();
    attempt(table, &url, "ssl-mode=required").await.unwrap();
    let other = Certificates::make();
    for mode in ["verify_ca", "verify_identity"] {
        let parameters = format!("ssl-mode={mode}&ssl-ca={}", other.authority());
        refused(table, &url, &parameters, &["the authority that issued", "ssl-ca"]).await;
    }
}

async fn a_server_without_tls_is_refused(table: &Table) {
    let (parameter, modes) = table.either(
        ("sslmode", ["require", "verify-ca", "verify-full"]),
        ("ssl-mode", ["required", "verify_ca", "verify_identity"]),
    );
    let url = table.server.url();
    for mode in modes {
        refused(table, &url, &format!("{parameter}={mode}"), &["TLS with", parameter]).await;
    }
    attempt(table, &url, "").await.unwrap();
}
