//! Locks of tenure in SQL databases: one row per name, held for a lease or locked by a connection.
//!
//! | you look for | it is in |
//! |---|---|
//! | locks in a SQLite file | `SqliteBackend`, `SqliteOptions` |
//! | locks in PostgreSQL | `PostgresBackend`, `PostgresOptions` |
//! | locks in MySQL or MariaDB | `MySqlBackend`, `MySqlOptions` |
//! | row locks or advisory locks instead of lease rows | `Strategy` |
//! | a row of yours that refuses stale holders | `Fence` |
//! | a pool whose settings may be handed over | `ServerBackend::connect_with`, `SqliteBackend::open_with`, [`sqlx`] |
//! | the table of lease rows, to create it by hand | `sqlite_schema`, `postgres_schema`, `mysql_schema` |
//! | the table of row locks, to create it by hand | `postgres_row_schema`, `mysql_row_schema` |
//! | the table of advisory locks, to create it by hand | `postgres_advisory_schema`, `mysql_row_schema` |
//!
//! Each database is a feature. None is on by default: `sqlite`, `postgres`, `mysql`.
//!
//! A row is the lease: it has the claim that holds the lock, the expiry by the database's own clock, and the token of
//! the last grant, which stays when the lock is released. Several readers or holders of permits share the row, each
//! with its own lease, and so does a queue. Every request commits what it does, so nothing is left open when a client
//! dies. For one holder, one statement is enough. Anything more is read, and written only if the row's version is still
//! the one that was read.
//!
//! # Reading the code
//!
//! Each file uses only those below it. There are two strategies, each with a trait of what it asks of a database, and
//! each database implements both traits (SQLite that of lease rows alone). `docs/contributing/walk.md` follows one
//! `acquire()`.
//!
//! | file | what is in it |
//! |---|---|
//! | `sqlite`, `postgres`, `mysql` | each database: its URLs, its statements, its connections, what its errors mean |
//! | `server` | code that PostgreSQL and MySQL share: options, connecting, which strategy |
//! | `lease_rows` | lease rows: acquiring, waiting, renewing, releasing |
//! | `session_locks` | row locks and advisory locks |
//! | `lane`, `hints` | one connection, with requests in order; news of releases |
//! | `silence` | whether a connection can be trusted that was idle for long |
//! | `strategy`, `patience`, `explained` | code that databases share: kinds of locks, time limits, errors |
//! | `fence` | rows of yours that refuse stale holders |
//! | `table`, `statement`, `values` | the words of a statement |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "_server", feature = "sqlite"))]
mod explained;
#[cfg(feature = "_server")]
mod fence;
#[cfg(any(feature = "_server", feature = "sqlite"))]
#[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "a file has no hints"))]
mod hints;
#[cfg(any(feature = "_server", feature = "sqlite"))]
#[cfg_attr(
    not(feature = "_server"),
    allow(dead_code, reason = "a file is opened at once, and is never slow to answer")
)]
mod lane;
#[cfg(any(feature = "_server", feature = "sqlite"))]
mod lease_rows;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "_server")]
mod patience;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "_server")]
mod server;
#[cfg(feature = "_server")]
mod session_locks;
#[cfg(any(feature = "_server", feature = "sqlite"))]
mod silence;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "_server", feature = "sqlite"))]
mod statement;
#[cfg(feature = "_server")]
mod strategy;
#[cfg(any(feature = "_server", feature = "sqlite"))]
mod table;
#[cfg(any(feature = "_server", feature = "sqlite"))]
mod values;

#[cfg(feature = "_server")]
pub use fence::{Fence, FenceError};
#[cfg(feature = "mysql")]
pub use mysql::{MySqlBackend, MySqlOptions, mysql_row_schema, mysql_schema};
#[cfg(feature = "postgres")]
pub use postgres::{
    AdvisoryKey, Durability, PostgresBackend, PostgresOptions, postgres_advisory_schema, postgres_row_schema,
    postgres_schema,
};
#[cfg(feature = "_server")]
pub use server::{Dialect, ServerBackend, ServerOptions};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteBackend, SqliteOptions, sqlite_schema};
#[cfg(feature = "_server")]
pub use strategy::Strategy;

/// The `sqlx` crate, in the version whose types this crate takes.
#[doc(no_inline)]
pub use sqlx;

/// The example in the README compiles.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../README.md")]
struct Readme;
