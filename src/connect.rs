//! From a URL to locks.

#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper"
))]
use crate::options::Options;
#[cfg(feature = "zookeeper")]
use crate::store_url::Ensemble;
use crate::store_url::{StoreUrl, Target};
#[cfg(any(feature = "mysql", feature = "postgres"))]
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;
use tenure_core::{Backend, Error, Locks, Memory, lease};
#[cfg(feature = "redis")]
use tenure_redis::{RedisBackend, RedisOptions, RedlockBackend, RedlockOptions};
#[cfg(any(feature = "mysql", feature = "postgres"))]
use tenure_sql::Strategy;
#[cfg(feature = "postgres")]
use tenure_sql::{Durability, PostgresBackend, PostgresOptions};
#[cfg(feature = "mysql")]
use tenure_sql::{MySqlBackend, MySqlOptions};
#[cfg(feature = "zookeeper")]
use tenure_zk::{ZkBackend, ZkOptions};
#[cfg(feature = "sqlite")]
use {
    std::path::PathBuf,
    tenure_sql::{SqliteBackend, SqliteOptions},
};

/// Opens the store that `url` names, and gives its locks.
///
/// The URL is checked whole before anything is opened: its scheme, its path or host, and every parameter. The schemes
/// and parameters are listed in [`urls`](crate::urls) and in `docs/urls.md`.
///
/// `memory:` is a fresh private store at each call; hand out clones of one [`Locks`] to share it. `sqlite:` takes a
/// relative path (`sqlite:locks.db`) or an absolute one (`sqlite:/var/lib/app/locks.db`, also after `sqlite://`), in
/// which `%XX` is decoded and `~` is not expanded.
///
/// # Cancel safety
///
/// Cancel safe: no lock is taken. The store's table may have been made.
///
/// # Errors
///
/// [`Error::InvalidUrl`] for a URL that is not understood, or whose store is not built in, with what would be valid
/// and without passwords. [`Error::Unavailable`] and [`Error::Store`] when the store cannot be opened.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let locks = tenure::connect("memory:?lease=10s").await?;
/// locks.lock("report").run(|hold| async move { println!("token {}", hold.token()) }).await?;
///
/// let error = tenure::connect("memory:?leese=10s").await.unwrap_err();
/// assert!(error.to_string().contains("unknown parameter \"leese\""));
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: impl AsRef<str>) -> Result<Locks, Error> {
    let url = StoreUrl::parse(url.as_ref())?;
    let lease = url.options.lease.unwrap_or(lease::DEFAULT_LEASE);
    Locks::with_lease(open(url).await?, lease)
}

/// Opens the store.
pub(crate) async fn open(url: StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    match url.target {
        Target::Memory => Ok(Arc::new(Memory::new())),
        #[cfg(feature = "sqlite")]
        Target::Sqlite(path) => Ok(Arc::new(SqliteBackend::open(sqlite(path, url.options)).await?)),
        #[cfg(feature = "redis")]
        Target::Redis(place) => Ok(Arc::new(RedisBackend::connect(redis(&place, &url.options)?).await?)),
        #[cfg(feature = "redis")]
        Target::Redlock(place) => {
            Ok(Arc::new(RedlockBackend::connect(redlock(&place, &url.options)?).await?))
        }
        #[cfg(feature = "postgres")]
        Target::Postgres(place) => {
            Ok(Arc::new(PostgresBackend::connect(postgres(place, url.options)).await?))
        }
        #[cfg(feature = "mysql")]
        Target::Mysql(place) => Ok(Arc::new(MySqlBackend::connect(mysql(place, url.options)).await?)),
        #[cfg(feature = "zookeeper")]
        Target::Zookeeper(ensemble) => {
            Ok(Arc::new(ZkBackend::connect(zookeeper(ensemble, url.options)?).await?))
        }
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(path: PathBuf, given: Options) -> SqliteOptions {
    let mut options = SqliteOptions::new(path);
    if let Some(prefix) = given.prefix {
        options = options.prefix(prefix);
    }
    if let Some(table) = given.table {
        options = options.table(table);
    }
    if let Some(create) = given.create_table {
        options = options.create_table(create);
    }
    if let Some(create) = given.create_directory {
        options = options.create_directory(create);
    }
    if let Some(longest) = given.poll {
        options = options.poll(longest);
    }
    if let Some(fair) = given.fair {
        options = options.fair(fair);
    }
    if let Some(longest) = given.busy_timeout {
        options = options.busy_timeout(longest);
    }
    options
}

#[cfg(feature = "redis")]
fn redis(url: &str, given: &Options) -> Result<RedisOptions, Error> {
    if let Some(longest) = given.node_timeout {
        let (given, allowed) =
            (format!("{longest:?}"), "it is for redlock: alone, whose locks have several nodes");
        return Err(Error::invalid_option("node_timeout", given, allowed));
    }
    Ok(redis_server(RedisOptions::from_url(url)?, given))
}

#[cfg(feature = "redis")]
fn redlock(url: &str, given: &Options) -> Result<RedlockOptions, Error> {
    let mut options = RedlockOptions::from_url(url)?.each(|server| redis_server(server, given));
    if let Some(longest) = given.node_timeout {
        options = options.node_timeout(longest);
    }
    Ok(options)
}

/// What is the same for one server and for each of several.
#[cfg(feature = "redis")]
fn redis_server(mut options: RedisOptions, given: &Options) -> RedisOptions {
    if let Some(prefix) = &given.prefix {
        options = options.prefix(prefix);
    }
    if let Some(longest) = given.connect_timeout {
        options = options.connect_timeout(longest);
    }
    if let Some(longest) = given.response_timeout {
        options = options.response_timeout(longest);
    }
    if let Some(fair) = given.fair {
        options = options.fair(fair);
    }
    if let Some(time) = given.remember {
        options = options.remember(time);
    }
    if let Some(count) = given.replicas {
        options = options.replicas(count);
    }
    options
}

/// The URL for a database's driver, with the parameters that are its own.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn for_driver(mut url: String, parameters: &[(&'static str, String)]) -> String {
    for (at, (name, value)) in parameters.iter().enumerate() {
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        url = format!("{url}{}{name}={value}", if at == 0 { '?' } else { '&' });
    }
    url
}

#[cfg(feature = "mysql")]
fn mysql(url: String, given: Options) -> MySqlOptions {
    let mut options = MySqlOptions::new(for_driver(url, &given.driver));
    if let Some(row_lock) = given.row_lock {
        options = options.strategy(if row_lock { Strategy::RowLock } else { Strategy::LeaseRow });
    }
    if let Some(prefix) = given.prefix {
        options = options.prefix(prefix);
    }
    if let Some(table) = given.table {
        options = options.table(table);
    }
    if let Some(create) = given.create_table {
        options = options.create_table(create);
    }
    if let Some(longest) = given.poll {
        options = options.poll(longest);
    }
    if let Some(fair) = given.fair {
        options = options.fair(fair);
    }
    if let Some(connections) = given.connections {
        options = options.connections(connections);
    }
    if let Some(longest) = given.connect_timeout {
        options = options.connect_timeout(longest);
    }
    if let Some(longest) = given.response_timeout {
        options = options.response_timeout(longest);
    }
    options
}

#[cfg(feature = "postgres")]
fn postgres(url: String, given: Options) -> PostgresOptions {
    let mut options = PostgresOptions::new(for_driver(url, &given.driver));
    if let Some(row_lock) = given.row_lock {
        options = options.strategy(if row_lock { Strategy::RowLock } else { Strategy::LeaseRow });
    }
    if let Some(prefix) = given.prefix {
        options = options.prefix(prefix);
    }
    if let Some(table) = given.table {
        options = options.table(table);
    }
    if let Some(create) = given.create_table {
        options = options.create_table(create);
    }
    if let Some(longest) = given.poll {
        options = options.poll(longest);
    }
    if let Some(fair) = given.fair {
        options = options.fair(fair);
    }
    if let Some(connections) = given.connections {
        options = options.connections(connections);
    }
    if let Some(longest) = given.connect_timeout {
        options = options.connect_timeout(longest);
    }
    if let Some(longest) = given.response_timeout {
        options = options.response_timeout(longest);
    }
    if let Some(durable) = given.durable {
        options = options.durability(if durable { Durability::Full } else { Durability::Relaxed });
    }
    if let Some(pooler) = given.pooler {
        options = options.pooler(pooler);
    }
    options
}

#[cfg(feature = "zookeeper")]
fn zookeeper(ensemble: Ensemble, given: Options) -> Result<ZkOptions, Error> {
    let Ensemble { hosts, chroot, login, encrypted } = ensemble;
    let mut options = ZkOptions::new(hosts).chroot(chroot);
    if encrypted {
        options = over_tls(options, &given)?;
    }
    options = match (login, given.sasl.unwrap_or(false)) {
        (Some((user, password)), false) => options.digest(user, password),
        (Some((user, password)), true) => sasl(options, user, password)?,
        (None, false) => options,
        (None, true) => {
            return Err(Error::invalid_option(
                "auth",
                "sasl",
                "it needs a user and a password before the hosts",
            ));
        }
    };
    if let Some(prefix) = given.prefix {
        options = options.prefix(if prefix.starts_with('/') { prefix } else { format!("/{prefix}") });
    }
    if let Some(timeout) = given.session_timeout {
        options = options.session_timeout(timeout);
    }
    if let Some(read_write) = given.read_write_nodes {
        options = options.read_write_nodes(read_write);
    }
    if let Some(longest) = given.connect_timeout {
        options = options.connect_timeout(longest);
    }
    if let Some(longest) = given.response_timeout {
        options = options.response_timeout(longest);
    }
    Ok(options)
}

#[cfg(feature = "zookeeper-sasl")]
#[allow(clippy::unnecessary_wraps, reason = "without the feature it is an error")]
fn sasl(options: ZkOptions, user: String, password: String) -> Result<ZkOptions, Error> {
    Ok(options.sasl(user, password))
}

#[cfg(all(feature = "zookeeper", not(feature = "zookeeper-sasl")))]
fn sasl(_: ZkOptions, _: String, _: String) -> Result<ZkOptions, Error> {
    let allowed = "digest; the feature \"zookeeper-sasl\" of tenure is not built into this program";
    Err(Error::invalid_option("auth", "sasl", allowed))
}

#[cfg(feature = "zookeeper-tls")]
fn over_tls(options: ZkOptions, given: &Options) -> Result<ZkOptions, Error> {
    let read = |option: &'static str, file: &Option<String>| {
        let shown = file.as_ref().map_or_else(|| "nothing".to_owned(), |file| format!("{file:?}"));
        let read = file.as_ref().map(std::fs::read_to_string).transpose();
        let refused =
            |why: String| Error::invalid_option(option, &shown, format!("a file in PEM format{why}"));
        let text = read.map_err(|error| refused(format!(" ({error})")))?;
        text.ok_or_else(|| refused(String::new()))
    };
    let options = options.tls(read("tls_ca", &given.tls_ca)?);
    if given.tls_cert.is_none() && given.tls_key.is_none() {
        return Ok(options);
    }
    Ok(options.tls_identity(read("tls_cert", &given.tls_cert)?, read("tls_key", &given.tls_key)?))
}

/// Never called: the scheme is refused without the feature.
#[cfg(all(feature = "zookeeper", not(feature = "zookeeper-tls")))]
fn over_tls(options: ZkOptions, _: &Options) -> Result<ZkOptions, Error> {
    Ok(options)
}

#[cfg(all(test, feature = "redis", feature = "zookeeper-sasl", feature = "zookeeper-tls"))]
mod tests {
    use super::*;

    fn zookeeper_options(url: &str) -> Result<ZkOptions, Error> {
        let StoreUrl { target: Target::Zookeeper(ensemble), options } = StoreUrl::parse(url)? else {
            panic!("{url} is not ZooKeeper")
        };
        zookeeper(ensemble, options)
    }

    #[test]
    fn every_parameter_of_zookeeper_reaches_its_options() {
        let timeouts = "session_timeout=11s&connect_timeout=12s&response_timeout=13s";
        let url = format!(
            "zookeeper://me:se%40cret@zk1,zk2:99/root?prefix=p&auth=sasl&nodes=read-write&{timeouts}"
        );
        let seen = format!("{:?}", zookeeper_options(&url).unwrap());
        for option in [
            r#"hosts: ["zk1", "zk2:99"]"#,
            r#"chroot: "/root""#,
            r#"prefix: "/p""#,
            "session_timeout: 11s",
            "connect_timeout: 12s",
            "response_timeout: 13s",
            "read_write_nodes: true",
            r#"scheme: Sasl, user: "me""#,
            "encrypted: false",
        ] {
            assert!(seen.contains(option), "{option} is not in {seen}");
        }
        assert!(!seen.contains("cret"), "{seen}");
        for url in ["zookeeper://me:secret@zk", "zookeeper://me:secret@zk?auth=digest"] {
            assert!(format!("{:?}", zookeeper_options(url).unwrap()).contains("scheme: Digest"), "{url}");
        }
        let error = zookeeper_options("zookeeper://zk?auth=sasl").unwrap_err();
        assert!(error.to_string().contains("a user and a password"), "{error}");
    }

    #[test]
    fn certificates_are_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, name).unwrap();
            path.display().to_string()
        };
        let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
        let given = |parameters: &str| zookeeper_options(&format!("zookeeper+tls://zk?{parameters}"));
        for parameters in [format!("tls_ca={ca}"), format!("tls_ca={ca}&tls_cert={cert}&tls_key={key}")] {
            let seen = format!("{:?}", given(&parameters).unwrap());
            assert!(seen.contains("encrypted: true"), "{parameters}: {seen}");
        }
        for (parameters, refused) in [
            ("session_timeout=9s".to_owned(), "tls_ca"),
            ("tls_ca=/nowhere/ca.pem".to_owned(), "tls_ca"),
            (format!("tls_ca={ca}&tls_cert={cert}"), "tls_key"),
            (format!("tls_ca={ca}&tls_key={key}"), "tls_cert"),
        ] {
            let error = given(&parameters).unwrap_err();
            assert!(
                matches!(&error, Error::InvalidOption { option, .. } if *option == refused),
                "{parameters}: {error}"
            );
        }
        let error = zookeeper_options(&format!("zookeeper://zk?tls_ca={ca}")).unwrap_err();
        assert!(error.to_string().contains("unknown parameter \"tls_ca\""), "{error}");
    }

    #[test]
    fn every_parameter_of_redis_reaches_its_options() {
        let url = "redis://host?prefix=p&connect_timeout=11ms&response_timeout=12ms&remember=13m&fair=true&replicas=2";
        let StoreUrl { target: Target::Redis(place), options } = StoreUrl::parse(url).unwrap() else {
            panic!("{url} is not Redis")
        };
        let seen = format!("{:?}", redis(&place, &options).unwrap());
        for option in [
            "prefix: \"p\"",
            "connect_timeout: 11ms",
            "response_timeout: 12ms",
            "remember: 780s",
            "fair: true",
            "replicas: 2",
        ] {
            assert!(seen.contains(option), "{option} is not in {seen}");
        }
    }
}
