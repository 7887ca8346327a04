//! One lock API over many stores.
//!
//! [`connect`] takes a URL and returns [`Locks`]. The URL alone decides whether they live in memory, in a SQLite file
//! or on a server. Every store keeps the same contract.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tenure::Error> {
//! let locks = tenure::connect("memory:").await?;
//!
//! let guard = locks.lock("orders/42").acquire().await?; // waits; renewed in the background
//! println!("writing with token {}", guard.token()); // the resource refuses a smaller token
//! guard.release().await?; // Err(Lost) if the lease had expired; dropping the guard releases too
//! # Ok(())
//! # }
//! ```
//!
//! | you look for | it is in |
//! |---|---|
//! | the stores and their URLs | [`connect`], [`urls`] |
//! | how a lock is acquired: waiting, leases, owners | [`Lock`] |
//! | the state of a held lock: token, loss, deadline | [`Guard`], [`Hold`] |
//! | holders and waiters | [`Locks::holders`], [`Locks::list`], [`Holder`]; [`Locks::waiting`], [`Waiter`] |
//! | errors and losses | [`Error`], [`LossCause`] |
//! | the limits and arithmetic of leases | [`lease`] |
//! | the same calls without async | [`blocking`] |
//! | measurements, for dashboards and alerts | [`metrics`] |
//! | the trait beneath, for authors of stores | [`backend`] |
//!
//! A program that already has a client or a pool makes the store with its settings, by the store's own crate
//! (`tenure-sql`, …), and passes it to [`Locks::new`]: see `docs/recipes.md`.
//!
//! # Features
//!
//! Each store is a feature. Only `memory` is on by default, and costs nothing to build. A URL whose store is not built
//! in is refused, with an error that names the feature.
//!
//! | feature | URLs | what it adds |
//! |---|---|---|
//! | `memory` (default) | `memory:` | nothing else |
//! | `sqlite` | `sqlite:` | SQLite itself, in C |
//! | `redis` | `redis:`, `rediss:`, `redis+sentinel:`, `redis+cluster:`, `redlock:`, … | a client with TLS |
//! | `postgres` | `postgres:` | a driver with TLS |
//! | `mysql` | `mysql:`, `mariadb:` | a driver with TLS |
//! | `zookeeper` | `zookeeper:` | a client |
//! | `zookeeper-sasl` | `zookeeper:` with `auth=sasl` | users whom the servers know, by DIGEST-MD5 |
//! | `zookeeper-tls` | `zookeeper+tls:` | cryptography in C that takes minutes to build |
//! | `etcd` | `etcd:` | a client; the build needs `protoc` (Debian: `protobuf-compiler`, `libprotobuf-dev`) |
//! | `etcd-tls` | `etcd+tls:` | the same cryptography |
//! | `nats` | `nats:`, `nats+tls:` | a client, with cryptography that needs a C compiler |
//! | `s3` | `s3:` | a client, with the same cryptography |
//!
//! Two more add no store: `metrics` measures what locks do, for the `metrics` crate and its exporters, and `sqlx` makes
//! a [`Token`] a parameter and a column in sqlx, which the features of SQL stores include.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
pub mod blocking;
mod connect;
mod stores;
pub mod urls;

pub use connect::connect;
pub use tenure_core::{
    Capabilities, Capability, ClaimId, Election, Error, Guard, HeldStream, Hold, Holder, HolderInfo,
    InvalidName, InvalidToken, Latch, Lock, LockSet, LockSetGuard, Locks, LossCause, Memory, Mode, Moment,
    Name, Operation, Owner, RwLock, Semaphore, StandingKind, StoreError, Token, Waiter, Wakeup, lease,
    metrics,
};

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples in the quick start compile, and run where they need no server.
#[cfg(doctest)]
#[doc = include_str!("../docs/quick-start-rust.md")]
struct QuickStart;

/// The recipes run, or compile where they need a server.
#[cfg(all(
    doctest,
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper"
))]
#[doc = include_str!("../docs/recipes.md")]
struct Recipes;

/// The example in the page for operators compiles.
#[cfg(all(doctest, feature = "metrics"))]
#[doc = include_str!("../docs/operate.md")]
struct Operate;
