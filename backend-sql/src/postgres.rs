//! Locks in PostgreSQL.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `lease_rows`, `lease_statements` | the requests of lease rows, each one statement |
//! | `row_locks`, `row_lock_statements` | the requests of row locks, and their statements |
//! | `advisory_locks`, `advisory_statements` | the same of advisory locks |
//! | `listener` | the connection that hears of releases |
//! | `server`, `values` | how a server is connected to and asked; the parameters of a statement |
//! | `errors` | the meaning of PostgreSQL's errors |
//! | `url`, `options` | from a URL to options |

mod advisory_locks;
mod advisory_statements;
mod errors;
mod lease_rows;
mod lease_statements;
mod listener;
mod options;
mod row_lock_statements;
mod row_locks;
mod server;
mod url;
mod values;

pub use advisory_statements::postgres_advisory_schema;
pub use lease_statements::postgres_schema;
pub use options::{AdvisoryKey, Durability, PostgresOptions};
pub use row_lock_statements::postgres_row_schema;

use crate::server::{Checked, Parts, ServerBackend};
use advisory_locks::PostgresAdvisoryLocks;
use lease_rows::PostgresRows;
use options::Own;
use row_locks::PostgresRowLocks;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::time::Duration;
use tenure_core::{Background, Error};

/// Locks in a PostgreSQL database, version 11 or later; with [`Strategy::Advisory`](crate::Strategy::Advisory) 14 or later.
///
/// Waiters are told of releases by [`NOTIFY`](https://www.postgresql.org/docs/current/sql-notify.html), over an extra
/// connection that listens once there was a waiter. They also ask again every [`poll`](crate::ServerOptions::poll), in
/// case a notification is lost.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_sql::{PostgresBackend, PostgresOptions};
///
/// let options = PostgresOptions::new("postgres://app:secret@db.example/app");
/// let locks = Locks::new(PostgresBackend::connect(options).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub type PostgresBackend = ServerBackend<sqlx::Postgres>;

impl Parts for sqlx::Postgres {
    type Own = Own;
    type LeaseRows = PostgresRows;
    type RowLocks = PostgresRowLocks;
    type AdvisoryLocks = PostgresAdvisoryLocks;

    const SCHEMES: &[&str] = &["postgres", "postgresql"];
    const FORM: &str = "postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE";
    const PARAMETERS: &[&str] =
        &["sslmode", "sslrootcert", "sslcert", "sslkey", "host", "port", "application_name"];
    const FILES: &[&str] = &["sslrootcert", "sslcert", "sslkey"];

    fn poll(own: &Own) -> Duration {
        if own.pooled() { Duration::from_millis(100) } else { Duration::from_secs(2) }
    }

    fn complete(connect: PgConnectOptions, query: &str) -> Result<PgConnectOptions, &'static str> {
        // The server would take the user's name for it, so two users would not exclude each other.
        if connect.get_database().is_none_or(str::is_empty) {
            return Err("missing database");
        }
        // As in libpq. The driver alone would not check the certificate.
        let authorities = query.split('&').any(|pair| pair.starts_with("sslrootcert="))
            || std::env::var_os("PGSSLROOTCERT").is_some();
        let connect = match connect.get_ssl_mode() {
            PgSslMode::Require if authorities => connect.ssl_mode(PgSslMode::VerifyCa),
            _ => connect,
        };
        if connect.get_application_name().is_some() {
            return Ok(connect);
        }
        Ok(connect.application_name("tenure"))
    }

    fn store(connect: &PgConnectOptions) -> String {
        server::store(connect)
    }

    fn lease_rows(options: Checked<Own>, connect: PgConnectOptions, background: Background) -> PostgresRows {
        PostgresRows::new(options, connect, background)
    }

    fn row_locks(options: Checked<Own>, connect: PgConnectOptions) -> PostgresRowLocks {
        PostgresRowLocks::new(options, connect)
    }

    fn advisory_locks(
        options: Checked<Own>,
        connect: PgConnectOptions,
    ) -> Result<PostgresAdvisoryLocks, Error> {
        PostgresAdvisoryLocks::new(options, connect)
    }
}
