//! A program and the command move from store to store by the URL alone.
#![cfg(all(feature = "etcd", feature = "nats", feature = "s3"))]

use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tenure::{Error, Locks};
use tenure_testbed::{Kind, Server};

const RECIPES: &str = include_str!("../../docs/recipes.md");

const HERE: &str = include_str!("stores.rs");

// The recipe begins.
/// Brings the schema to version 3, and returns how many steps that took. `version` stands for a table.
async fn migrate(locks: &Locks, version: &AtomicU32) -> Result<u32, Error> {
    let lock = locks.lock("migrations").wait(Duration::from_mins(5)); // `Error::Timeout` names the holder
    lock.run(|hold| async move {
        let mut steps = 0;
        // Read under the lock: another replica may have migrated while this one waited.
        while version.load(Ordering::Relaxed) < 3 {
            assert!(hold.is_held()); // before each step that cannot be dropped halfway
            version.fetch_add(1, Ordering::Relaxed); // the step and its version, in one transaction
            steps += 1;
        }
        steps
    })
    .await
}
// The recipe ends.

#[test]
fn recipe_is_that_of_the_page() {
    let (_, begun) = HERE.split_once("// The recipe begins.\n").expect("a beginning");
    let (recipe, _) = begun.split_once("// The recipe ends.").expect("an end");
    assert!(RECIPES.contains(recipe), "docs/recipes.md has no {recipe}");
}

/// Runs the recipe and the command with a URL of this server, which these parameters are added to.
async fn moves_to(kind: Kind, parameters: &str) {
    let server = match Server::find(kind).await {
        Ok(server) => server,
        Err(reason) => return tenure_conformance::skip(kind.name(), &reason.to_string()).unwrap(),
    };
    let url = format!("{}{parameters}", server.url());
    let locks = tenure::connect(&url).await.unwrap();
    let version = AtomicU32::new(1);
    let (one, other) = tokio::join!(migrate(&locks, &version), migrate(&locks, &version));
    assert_eq!(one.unwrap() + other.unwrap(), 2);

    let held = locks.lock("migrations").acquire().await.unwrap();
    assert_eq!(command(&url), Some(75));
    held.release().await.unwrap();
    assert_eq!(command(&url), Some(0));
    locks.close().await;
}

/// Tries to run a command under the recipe's lock. Returns the exit code.
fn command(url: &str) -> Option<i32> {
    let mut tenure = Command::new(env!("CARGO_BIN_EXE_tenure"));
    tenure.env("TENURE_STORE", url).args(["--quiet", "run", "--try", "migrations", "--", "true"]);
    tenure.output().unwrap().status.code()
}

#[tokio::test]
async fn redis_needs_its_url_alone() {
    moves_to(Kind::Redis, "").await;
}

#[tokio::test]
async fn postgres_advisory_needs_its_url_alone() {
    moves_to(Kind::Postgres, "?strategy=advisory").await;
}

#[tokio::test]
async fn zookeeper_needs_its_url_alone() {
    moves_to(Kind::Zookeeper, "").await;
}

#[tokio::test]
async fn etcd_needs_its_url_alone() {
    moves_to(Kind::Etcd, "").await;
}

#[tokio::test]
async fn nats_needs_its_url_alone() {
    moves_to(Kind::Nats, "").await;
}

#[tokio::test]
async fn s3_needs_its_url_alone() {
    moves_to(Kind::S3, "&poll=200ms").await;
}
