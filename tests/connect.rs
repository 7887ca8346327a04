//! From a URL to locks.

#![cfg(all(feature = "memory", feature = "sqlite"))]

use std::time::Duration;
use tempfile::TempDir;
use tenure::{Error, Locks, Moment, backend};

async fn excludes(one: &Locks, other: &Locks) -> bool {
    let guard = one.lock("a").acquire().await.unwrap();
    let excluded = other.lock("a").try_acquire().await.unwrap().is_none();
    guard.release().await.unwrap();
    excluded
}

fn url(directory: &TempDir, rest: &str) -> String {
    format!("sqlite:{}/{rest}", directory.path().display())
}

#[tokio::test]
async fn memory_url_opens_new_store_each_time() {
    let [one, other] = [tenure::connect("memory:").await.unwrap(), tenure::connect("memory:").await.unwrap()];
    assert!(!excludes(&one, &other).await);
    assert!(excludes(&one, &one.clone()).await);
}

#[tokio::test]
async fn prefixes_separate_clients_of_one_file() {
    let directory = TempDir::new().unwrap();
    let connect = async |rest: &str| tenure::connect(url(&directory, rest)).await.unwrap();
    let (one, other) = (connect("locks.db").await, connect("locks.db").await);
    assert!(excludes(&one, &other).await);
    assert!(!excludes(&one, &connect("locks.db?prefix=x").await).await);
    assert!(!excludes(&one, &connect("locks.db?table=another").await).await);
    let within = async |rest: &str, namespace| {
        Locks::new(backend::open_in(url(&directory, rest), namespace).await.unwrap())
    };
    assert!(excludes(&connect("locks.db?prefix=xy").await, &within("locks.db?prefix=x", "y").await).await);
    assert!(!excludes(&connect("locks.db?prefix=x").await, &within("locks.db?prefix=x", "y").await).await);
    let error = backend::open_in("memory:", "two\nlines").await.err().unwrap();
    assert!(matches!(error, Error::InvalidOption { option: "prefix", .. }), "{error}");
}

#[tokio::test]
async fn lease_of_url_is_default_of_locks() {
    for url in ["memory:?lease=1h", &url(&TempDir::new().unwrap(), "x/l.db?create_directory=true&lease=1h")] {
        let locks = tenure::connect(url).await.unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        let left = guard.deadline().unwrap().since(Moment::now());
        assert!(left > Duration::from_mins(50) && left < Duration::from_hours(1), "{url}: {left:?}");
    }
}

/// The user who wrote the URL chose a file, and may never have seen its text.
#[cfg(all(feature = "redis", feature = "zookeeper-tls", feature = "etcd-tls", feature = "nats"))]
#[tokio::test]
async fn error_names_the_file_without_a_certificate() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("x.pem");
    std::fs::write(&file, "no certificate").unwrap();
    for (place, option) in [
        ("rediss://127.0.0.1:1", "tls_ca"),
        ("zookeeper+tls://127.0.0.1:1", "tls_ca"),
        ("etcd+tls://127.0.0.1:1", "tls_ca"),
        ("nats://127.0.0.1:1/locks", "credentials_file"),
    ] {
        let url = format!("{place}?{option}={}", file.display());
        let error = tenure::connect(&url).await.unwrap_err();
        assert!(matches!(error, Error::InvalidUrl { .. }), "{url}: {error:?}");
        let named = format!("the {option} file {file:?} is invalid; expected ");
        assert!(error.to_string().contains(&named), "{url}: {error}");
    }
}

/// A wrong URL creates no file, even if only the store can judge the fault.
#[tokio::test]
async fn wrong_url_creates_no_file() {
    let directory = TempDir::new().unwrap();
    let wrong = [
        "table=a%20b",
        "table=sqlite_x",
        "busy_timeout=0s",
        "create_table=yes",
        "lease=5s&lease=5s",
        "prefix=%0A",
        "create_directory=true&poll=x",
    ];
    for query in wrong {
        let error = tenure::connect(url(&directory, &format!("new/locks.db?{query}"))).await.unwrap_err();
        assert!(matches!(error, Error::InvalidUrl { .. }), "{query}: {error}");
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn word_without_scheme_names_its_store() {
    for (url, meant) in [
        ("/srv/locks.db", "sqlite:/srv/locks.db"),
        ("./locks", "sqlite:./locks"),
        ("locks.db", "sqlite:locks.db"),
    ] {
        let said = tenure::connect(url).await.unwrap_err().to_string();
        assert!(said.ends_with(&format!("missing scheme; did you mean {meant:?}?")), "{said}");
    }
    // As an environment file without a shell may have it.
    for url in [" sqlite:locks.db", "'sqlite:locks.db'"] {
        let said = tenure::connect(url).await.unwrap_err().to_string();
        assert!(said.ends_with("space or quote before the scheme; remove it"), "{said}");
    }
    for (url, meant) in [("sqlite", "sqlite:PATH"), ("memori", "memory:")] {
        let said = tenure::connect(url).await.unwrap_err().to_string();
        assert!(said.ends_with(&format!("missing scheme; write {meant}")), "{said}");
    }
    let said = tenure::connect("/srv/me@locks.db").await.unwrap_err().to_string();
    assert!(said.contains("missing scheme; known: "), "{said}");
}
