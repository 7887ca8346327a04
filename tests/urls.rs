//! `docs/urls.md` lists what the stores say of their URLs, and the stores keep to it.

#![cfg(all(
    feature = "etcd-tls",
    feature = "memory",
    feature = "mysql",
    feature = "nats",
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "sqlite",
    feature = "zookeeper-tls"
))]

use std::{collections::BTreeSet, fmt, time::Duration};
use tenure::{
    Error,
    urls::{Parameter, Scheme, parameters, schemes},
};
use tenure_etcd::EtcdOptions;
use tenure_nats::NatsOptions;
use tenure_object::ObjectOptions;
use tenure_redis::{RedisOptions, RedlockOptions};
use tenure_sql::{MySqlOptions, PostgresOptions, SqliteOptions};
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
fn page_lists_every_scheme() {
    let row = |scheme: &Scheme| format!("| `{}` | `{}` | {} |", scheme.form, scheme.feature, scheme.about);
    assert_eq!(rows("# Stores and their URLs"), schemes().iter().map(row).collect::<Vec<_>>());
}

#[test]
fn page_lists_every_parameter() {
    let parameters = parameters();
    let every_store = &parameters[0].stores;
    let row = |parameter: &Parameter| {
        let Parameter { name, stores, takes, default, about, .. } = parameter;
        let stores = if stores == every_store { "every store".to_owned() } else { stores.join(", ") };
        format!("| `{name}` | {stores} | {takes} | {default} | {about} |")
    };
    assert_eq!(rows("## Parameters"), parameters.iter().map(row).collect::<Vec<_>>());
}

/// A URL of each store, up to a parameter. No server listens at the ports.
const URLS: [(&str, &str); 10] = [
    ("memory", "memory:?"),
    ("sqlite", "sqlite:/nowhere/at/all.db?"),
    ("redis", "redis://127.0.0.1:1?"),
    ("redlock", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?"),
    ("postgres", "postgres://u:p@127.0.0.1:1/d?strategy=row-lock&"),
    ("mysql", "mysql://u:p@127.0.0.1:1/d?strategy=row-lock&"),
    ("zookeeper", "zookeeper://127.0.0.1:1?"),
    ("etcd", "etcd://127.0.0.1:1?"),
    ("nats", "nats://127.0.0.1:1/bucket?"),
    ("s3", "s3://bucket?endpoint=http://127.0.0.1:1&"),
];

/// Both ends of a range in words, and the values just beyond them.
fn ends(takes: &str) -> Option<([String; 2], Vec<String>)> {
    let (least, most) = takes.trim_start_matches("a duration with its unit, ").split_once(" to ")?;
    let beyond = if takes.starts_with("a duration") {
        let [least, most] = [least, most].map(|end| humantime::parse_duration(end).unwrap().as_nanos());
        [least - 1, most + 1].map(|nanos| format!("{nanos}ns")).to_vec()
    } else {
        let (least, most): (u32, u32) = (least.parse().ok()?, most.parse().ok()?);
        least.checked_sub(1).into_iter().chain([most + 1]).map(|number| number.to_string()).collect()
    };
    Some(([least.to_owned(), most.to_owned()], beyond))
}

async fn is_refused(url: &str) -> bool {
    // A URL is checked before the first request, whose answer this does not wait for.
    let connected = tokio::time::timeout(Duration::ZERO, tenure::connect(url)).await;
    matches!(connected, Ok(Err(Error::InvalidUrl { .. })))
}

#[tokio::test]
async fn range_includes_its_ends_only() {
    let mut checked = 0;
    for Parameter { name, stores, takes, .. } in parameters() {
        let Some((inside, beyond)) = ends(&takes) else { continue };
        for (_, url) in URLS.iter().filter(|(store, _)| stores.contains(store)) {
            for value in &inside {
                let url = format!("{url}{name}={value}");
                assert!(!is_refused(&url).await, "{url} is refused");
            }
            for value in &beyond {
                let url = format!("{url}{name}={value}");
                assert!(is_refused(&url).await, "{url} is taken");
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} ranges were checked");
}

/// The options that a URL sets, as `Debug` shows them.
fn options(store: &str, url: &str) -> Result<String, Error> {
    fn shown<O: fmt::Debug>(options: Result<O, Error>) -> Result<String, Error> {
        options.map(|options| format!("{options:?}"))
    }
    match store {
        "sqlite" => shown(SqliteOptions::from_url(url)),
        "redis" => shown(RedisOptions::from_url(url)),
        "redlock" => shown(RedlockOptions::from_url(url)),
        "postgres" => shown(PostgresOptions::from_url(url)),
        "mysql" => shown(MySqlOptions::from_url(url)),
        "zookeeper" => shown(ZkOptions::from_url(url)),
        "etcd" | "etcd+tls" => shown(EtcdOptions::from_url(url)),
        "nats" => shown(NatsOptions::from_url(url)),
        "s3" => shown(ObjectOptions::from_url(url)),
        store => panic!("no options of {store}"),
    }
}

/// Whether `Debug` shows the parameter's value. Memory has no options. Tests of `tenure-sql` read the driver's own back
/// from it, and one of `tenure-zk` adds the login that `auth` needs. The locks above the store read `lease` and
/// `succession`.
fn is_shown(store: &str, name: &str) -> bool {
    match store {
        "memory" => false,
        "postgres" | "mysql" if name == "password_file" || name.starts_with("ssl") => false,
        "zookeeper" if name == "auth" => false,
        _ => !["lease", "succession"].contains(&name),
    }
}

#[test]
fn every_parameter_reaches_an_option_of_its_own() {
    // Only its owner can read it.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "hunter2").unwrap();
    let mut seen = BTreeSet::new();
    for Parameter { name, stores, takes, .. } in parameters() {
        let range = ends(&takes).map(|(inside, _)| inside);
        let values = match &range {
            Some(inside) => inside.to_vec(),
            None if takes.contains("file") => vec![file.path().display().to_string()],
            // A text may be its own description.
            None => takes.split(", ").flat_map(|words| words.split(" or ")).map(str::to_owned).collect(),
        };
        for (store, url) in URLS.into_iter().chain([("etcd+tls", "etcd+tls://127.0.0.1:1?")]) {
            if !stores.contains(&store) || !is_shown(store, name) {
                continue;
            }
            let (place, _) = url.split_once('?').unwrap();
            let without = options(store, place).unwrap();
            let mut changes = 0;
            for value in &values {
                let Ok(with) = options(store, &format!("{place}?{name}={value}")) else { continue };
                assert!(!with.contains("hunter2"), "{store}: {name} is shown in {with}");
                let span = takes.starts_with("a duration").then(|| humantime::parse_duration(value).unwrap());
                let value = span.map_or(value.clone(), |span| format!("{span:?}"));
                let shown = [format!("{name}: {value}"), format!("{name}: Some({value})")];
                let is_set = range.is_none() || shown.iter().any(|shown| with.contains(shown));
                assert!(is_set, "{store}: {name} is not {value} in {with}");
                if with != without {
                    assert!(
                        seen.insert((store, with)),
                        "{store}: {name} has the effect of another parameter"
                    );
                    changes += 1;
                }
            }
            assert!(changes > 0, "{store}: {name} changes nothing in {without}");
        }
    }
}

#[tokio::test]
async fn usual_port_names_its_store() {
    for (url, meant) in [
        ("zk1:2181,zk2:2181", "zookeeper://zk1:2181…"),
        ("etcd1:2379,etcd2:2379", "etcd://etcd1:2379…"),
        ("etcd.internal:2379", "etcd://etcd.internal:2379"),
        ("nats1:4222", "nats://nats1:4222"),
    ] {
        let said = tenure::connect(url).await.unwrap_err().to_string();
        assert!(said.contains(&format!("did you mean \"{meant}\"?")), "{said}");
    }
}

#[tokio::test]
async fn succession_is_refused_with_fair_queue() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("locks.db").display());
    let refused = tenure::connect(format!("{file}?succession=4&fair=true")).await.unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("succession") && said.contains("without fair=true"), "{said}");
    assert!(tenure::connect(format!("{file}?succession=4")).await.is_ok(), "refused without a queue");
    assert!(tenure::connect(format!("{file}?succession=0&fair=true")).await.is_ok(), "off is refused");
}

#[tokio::test]
async fn lease_rows_take_at_most_64_connections() {
    for url in ["postgres://u:p@127.0.0.1:1/d?connections=", "mysql://u:p@127.0.0.1:1/d?connections="] {
        assert!(!is_refused(&format!("{url}64")).await, "{url}64 is refused");
        assert!(is_refused(&format!("{url}65")).await, "{url}65 is taken");
    }
}
