//! `docs/urls.md` says what the code does.

#![cfg(all(
    feature = "memory",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper"
))]

use std::{fmt::Display, ops::RangeInclusive, time::Duration};
use tenure::{
    Error,
    urls::{PARAMETERS, SCHEMES},
};
use tenure_core::lease;
use tenure_redis::{RedisOptions, RedlockOptions};
use tenure_sql::{MySqlOptions, PostgresOptions, SqliteOptions, Strategy};
use tenure_zk::ZkOptions;

/// The rows of the table under a heading, without its two lines of header.
fn rows(heading: &str) -> Vec<String> {
    let page = include_str!("../docs/urls.md");
    let (_, section) = page.split_once(heading).unwrap();
    let table =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).map(str::to_owned).collect()
}

#[test]
fn the_page_lists_every_scheme() {
    let row = |scheme: &tenure::urls::Scheme| {
        format!("| `{}` | `{}` | {} |", scheme.form, scheme.feature, scheme.about)
    };
    assert_eq!(rows("# Stores and their URLs"), SCHEMES.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn the_page_lists_every_parameter() {
    let row = |parameter: &tenure::urls::Parameter| {
        let stores =
            if parameter.stores.is_empty() { "every store".to_owned() } else { parameter.stores.join(", ") };
        let (name, takes) = (parameter.name, parameter.takes);
        format!("| `{name}` | {stores} | {takes} | {} | {} |", parameter.default, parameter.about)
    };
    assert_eq!(rows("## Parameters"), PARAMETERS.iter().map(row).collect::<Vec<_>>());
}

/// A range that a store keeps: the parameter, and a URL of the store up to the value.
struct Kept {
    parameter: &'static str,
    url: &'static str,
    /// From and to, as the page writes them.
    ends: [String; 2],
    inside: [String; 2],
    outside: Vec<String>,
}

impl Kept {
    fn durations(parameter: &'static str, url: &'static str, range: &RangeInclusive<Duration>) -> Self {
        let (least, most) = (*range.start(), *range.end());
        let exactly = |span: Duration| humantime::format_duration(span).to_string().replace(' ', "");
        let (ends, inside) = ([words(least), words(most)], [exactly(least), exactly(most)]);
        let step = Duration::from_nanos(1);
        let outside = [least.saturating_sub(step), most + step].map(exactly).to_vec();
        Self { parameter, url, ends, inside, outside }
    }

    fn numbers(parameter: &'static str, url: &'static str, least: u64, most: u64) -> Self {
        let text = |number: &dyn Display| number.to_string();
        let outside = least.checked_sub(1).iter().chain(&[most + 1]).map(|number| text(number)).collect();
        Self {
            parameter,
            url,
            ends: [text(&least), text(&most)],
            inside: [text(&least), text(&most)],
            outside,
        }
    }

    fn connections(url: &'static str, strategy: Strategy) -> Self {
        let (range, number) = (strategy.connections(), |n: &usize| u64::try_from(*n).unwrap());
        Self::numbers("connections", url, number(range.start()), number(range.end()))
    }
}

/// A duration as the page writes it, in one unit.
fn words(span: Duration) -> String {
    let millis = span.as_millis();
    let units = [(86_400_000, "days"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
    let (unit, word) = units.into_iter().find(|(unit, _)| millis.is_multiple_of(*unit)).unwrap();
    format!("{}{word}", millis / unit)
}

/// What the stores themselves check by. Nobody listens at the port.
fn kept() -> Vec<Kept> {
    let (redis, redlock) = ("redis://127.0.0.1:1?", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?");
    let (postgres, mysql) = ("postgres://u:p@127.0.0.1:1/d?", "mysql://u:p@127.0.0.1:1/d?");
    let (sqlite, zookeeper) = ("sqlite:/nowhere/at/all.db?", "zookeeper://127.0.0.1:1?");
    let replicas = RedisOptions::REPLICAS_RANGE;
    let durations = Kept::durations;
    vec![
        durations("lease", "memory:?", &(lease::MIN_LEASE..=lease::MAX_LEASE)),
        durations("poll", sqlite, &SqliteOptions::POLL_RANGE),
        durations("poll", postgres, &PostgresOptions::POLL_RANGE),
        durations("poll", mysql, &MySqlOptions::POLL_RANGE),
        durations("busy_timeout", sqlite, &SqliteOptions::BUSY_TIMEOUT_RANGE),
        durations("connect_timeout", redis, &RedisOptions::CONNECT_TIMEOUT_RANGE),
        durations("connect_timeout", postgres, &PostgresOptions::CONNECT_TIMEOUT_RANGE),
        durations("connect_timeout", mysql, &MySqlOptions::CONNECT_TIMEOUT_RANGE),
        durations("connect_timeout", zookeeper, &ZkOptions::CONNECT_TIMEOUT_RANGE),
        durations("response_timeout", redis, &RedisOptions::RESPONSE_TIMEOUT_RANGE),
        durations("response_timeout", postgres, &PostgresOptions::RESPONSE_TIMEOUT_RANGE),
        durations("response_timeout", mysql, &MySqlOptions::RESPONSE_TIMEOUT_RANGE),
        durations("response_timeout", zookeeper, &ZkOptions::RESPONSE_TIMEOUT_RANGE),
        durations("remember", redis, &RedisOptions::REMEMBER_RANGE),
        durations("node_timeout", redlock, &RedlockOptions::NODE_TIMEOUT_RANGE),
        durations("session_timeout", zookeeper, &ZkOptions::SESSION_TIMEOUT_RANGE),
        Kept::numbers("replicas", redis, u64::from(*replicas.start()), u64::from(*replicas.end())),
        Kept::connections(postgres, Strategy::LeaseRow),
        Kept::connections(mysql, Strategy::LeaseRow),
        Kept::connections("postgres://u:p@127.0.0.1:1/d?strategy=row-lock&", Strategy::RowLock),
        Kept::connections("mysql://u:p@127.0.0.1:1/d?strategy=row-lock&", Strategy::RowLock),
    ]
}

/// A store whose range is another than the first one's says so behind a comma or a semicolon.
#[test]
fn the_page_s_ranges_are_those_that_the_stores_keep() {
    for Kept { parameter, url, ends: [least, most], .. } in kept() {
        let takes = PARAMETERS.iter().find(|known| known.name == parameter).unwrap().takes;
        let said = match (parameter, url.split(':').next().unwrap()) {
            ("connect_timeout" | "response_timeout", "zookeeper") => format!(", in ZooKeeper from {least}"),
            ("connections", _) if url.contains("row-lock") => format!("; for row locks {least} to {most}"),
            _ => format!("{least} to {most}"),
        };
        assert!(takes.contains(&said), "{url}{parameter}: {said:?} is not in {takes:?}");
    }
}

#[tokio::test]
async fn both_ends_of_a_range_are_taken_and_what_is_beyond_is_refused() {
    let refused = async |url: &str| {
        // A server that is not there may be asked for again and again.
        let connected = tokio::time::timeout(Duration::from_millis(200), tenure::connect(url)).await;
        matches!(connected, Ok(Err(Error::InvalidOption { .. } | Error::InvalidUrl { .. })))
    };
    for Kept { parameter, url, inside, outside, .. } in kept() {
        for value in inside {
            let url = format!("{url}{parameter}={value}");
            assert!(!refused(&url).await, "{url} is refused");
        }
        for value in outside {
            let url = format!("{url}{parameter}={value}");
            assert!(refused(&url).await, "{url} is taken");
        }
    }
}
