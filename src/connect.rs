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
            Ok(Arc::new(ZkBackend::connect(zookeeper(ensemble, url.options)).await?))
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
fn zookeeper(Ensemble { hosts, chroot, login }: Ensemble, given: Options) -> ZkOptions {
    let mut options = ZkOptions::new(hosts).chroot(chroot);
    if let Some((user, password)) = login {
        options = options.digest(user, password);
    }
    if let Some(prefix) = given.prefix {
        options = options.prefix(if prefix.starts_with('/') { prefix } else { format!("/{prefix}") });
    }
    if let Some(timeout) = given.session_timeout {
        options = options.session_timeout(timeout);
    }
    if let Some(longest) = given.connect_timeout {
        options = options.connect_timeout(longest);
    }
    if let Some(longest) = given.response_timeout {
        options = options.response_timeout(longest);
    }
    options
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

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
