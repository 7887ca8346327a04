//! The values of a URL's parameters, each read once, into its type.

use std::time::Duration;
use tenure_core::lease;

/// What the parameters of a URL say. `None` leaves the store's default.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    not(all(
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "sqlite",
        feature = "zookeeper-tls"
    )),
    allow(dead_code, reason = "each store reads its own")
)]
pub(crate) struct Options {
    pub(crate) lease: Option<Duration>,
    pub(crate) prefix: Option<String>,
    pub(crate) table: Option<String>,
    pub(crate) create_table: Option<bool>,
    pub(crate) create_directory: Option<bool>,
    pub(crate) poll: Option<Duration>,
    pub(crate) busy_timeout: Option<Duration>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) response_timeout: Option<Duration>,
    pub(crate) remember: Option<Duration>,
    pub(crate) connections: Option<usize>,
    /// Whether a commit waits for the disk.
    pub(crate) durable: Option<bool>,
    pub(crate) pooler: Option<bool>,
    pub(crate) session_timeout: Option<Duration>,
    pub(crate) fair: Option<bool>,
    /// Whether a lock is a locked row.
    pub(crate) row_lock: Option<bool>,
    pub(crate) replicas: Option<u32>,
    pub(crate) node_timeout: Option<Duration>,
    /// Whether a node is named as a writer's.
    pub(crate) read_write_nodes: Option<bool>,
    /// Whether the user is shown by SASL.
    pub(crate) sasl: Option<bool>,
    pub(crate) tls_ca: Option<String>,
    pub(crate) tls_cert: Option<String>,
    pub(crate) tls_key: Option<String>,
    /// What is handed on to the driver, as name and value.
    pub(crate) driver: Vec<(&'static str, String)>,
}

pub(crate) fn lease(options: &mut Options, given: &str) -> bool {
    put(&mut options.lease, duration(given, lease::MIN_LEASE, lease::MAX_LEASE))
}

pub(crate) fn prefix(options: &mut Options, given: &str) -> bool {
    let fits = (1..=200).contains(&given.len()) && !given.chars().any(char::is_control);
    put(&mut options.prefix, fits.then(|| given.to_owned()))
}

// The ranges of what follows are the store's: it checks them before it opens anything.

pub(crate) fn table(options: &mut Options, given: &str) -> bool {
    put(&mut options.table, Some(given.to_owned()))
}

pub(crate) fn create_table(options: &mut Options, given: &str) -> bool {
    put(&mut options.create_table, given.parse().ok())
}

pub(crate) fn create_directory(options: &mut Options, given: &str) -> bool {
    put(&mut options.create_directory, given.parse().ok())
}

pub(crate) fn poll(options: &mut Options, given: &str) -> bool {
    put(&mut options.poll, duration(given, Duration::ZERO, Duration::MAX))
}

pub(crate) fn busy_timeout(options: &mut Options, given: &str) -> bool {
    put(&mut options.busy_timeout, duration(given, Duration::ZERO, Duration::MAX))
}

pub(crate) fn connect_timeout(options: &mut Options, given: &str) -> bool {
    put(&mut options.connect_timeout, duration(given, Duration::ZERO, Duration::MAX))
}

pub(crate) fn response_timeout(options: &mut Options, given: &str) -> bool {
    put(&mut options.response_timeout, duration(given, Duration::ZERO, Duration::MAX))
}

pub(crate) fn remember(options: &mut Options, given: &str) -> bool {
    put(&mut options.remember, duration(given, Duration::ZERO, Duration::MAX))
}

pub(crate) fn connections(options: &mut Options, given: &str) -> bool {
    put(&mut options.connections, given.parse().ok())
}

pub(crate) fn durability(options: &mut Options, given: &str) -> bool {
    let durable = match given {
        "full" => Some(true),
        "relaxed" => Some(false),
        _ => None,
    };
    put(&mut options.durable, durable)
}

pub(crate) fn strategy(options: &mut Options, given: &str) -> bool {
    let row_lock = match given {
        "lease-row" => Some(false),
        "row-lock" => Some(true),
        _ => None,
    };
    put(&mut options.row_lock, row_lock)
}

pub(crate) fn pooler(options: &mut Options, given: &str) -> bool {
    put(&mut options.pooler, given.parse().ok())
}

pub(crate) fn session_timeout(options: &mut Options, given: &str) -> bool {
    put(&mut options.session_timeout, duration(given, Duration::ZERO, Duration::MAX))
}

pub(crate) fn node_timeout(options: &mut Options, given: &str) -> bool {
    put(&mut options.node_timeout, duration(given, Duration::ZERO, Duration::MAX))
}

pub(crate) fn fair(options: &mut Options, given: &str) -> bool {
    put(&mut options.fair, given.parse().ok())
}

pub(crate) fn replicas(options: &mut Options, given: &str) -> bool {
    put(&mut options.replicas, given.parse().ok())
}

pub(crate) fn nodes(options: &mut Options, given: &str) -> bool {
    let read_write = match given {
        "lock" => Some(false),
        "read-write" => Some(true),
        _ => None,
    };
    put(&mut options.read_write_nodes, read_write)
}

pub(crate) fn auth(options: &mut Options, given: &str) -> bool {
    let sasl = match given {
        "digest" => Some(false),
        "sasl" => Some(true),
        _ => None,
    };
    put(&mut options.sasl, sasl)
}

pub(crate) fn tls_ca(options: &mut Options, given: &str) -> bool {
    put(&mut options.tls_ca, Some(given.to_owned()))
}

pub(crate) fn tls_cert(options: &mut Options, given: &str) -> bool {
    put(&mut options.tls_cert, Some(given.to_owned()))
}

pub(crate) fn tls_key(options: &mut Options, given: &str) -> bool {
    put(&mut options.tls_key, Some(given.to_owned()))
}

fn put<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    *place = value;
    place.is_some()
}

fn duration(given: &str, least: Duration, most: Duration) -> Option<Duration> {
    let given = humantime::parse_duration(given).ok()?;
    (least <= given && given <= most).then_some(given)
}
