//! `docs/urls.md` lists what the stores say of their URLs, and the stores keep to it.

#![cfg(all(
    feature = "etcd-tls",
    feature = "memory",
    feature = "mysql",
    feature = "nats",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper-tls"
))]

use std::time::Duration;
use tenure::{
    Error,
    urls::{Parameter, Scheme, parameters, schemes},
};

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
const URLS: [(&str, &str); 9] = [
    ("memory", "memory:?"),
    ("sqlite", "sqlite:/nowhere/at/all.db?"),
    ("redis", "redis://127.0.0.1:1?"),
    ("redlock", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?"),
    ("postgres", "postgres://u:p@127.0.0.1:1/d?strategy=row-lock&"),
    ("mysql", "mysql://u:p@127.0.0.1:1/d?strategy=row-lock&"),
    ("zookeeper", "zookeeper://127.0.0.1:1?"),
    ("etcd", "etcd://127.0.0.1:1?"),
    ("nats", "nats://127.0.0.1:1/bucket?"),
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
    matches!(connected, Ok(Err(Error::InvalidOption { .. } | Error::InvalidUrl { .. })))
}

#[tokio::test]
async fn range_includes_its_ends_only() {
    let mut checked = 0;
    for Parameter { name, stores, takes, .. } in parameters() {
        let Some((inside, beyond)) = ends(&takes) else { continue };
        for (store, url) in URLS.iter().filter(|(store, _)| stores.contains(store)) {
            // Which takes the whole range only to say why there is but one number.
            let inside = if (*store, name) == ("redlock", "replicas") { &inside[..1] } else { &inside };
            for value in inside {
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
    assert!(said.contains("succession") && said.contains("queue"), "{said}");
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
