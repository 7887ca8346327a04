//! Locks in MySQL and MariaDB.
//!
//! Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `lease_rows`, `guesses` | the requests of lease rows; which statement is likely to be enough |
//! | `row_locks`, `row_lock_statements` | the requests of row locks and advisory locks, and their statements |
//! | `ringer`, `bell` | how a process tells another of a release, and how it is told |
//! | `lease_statements` | the statements of lease rows |
//! | `server` | how a server is connected to and asked |
//! | `cluster` | whether other nodes accept writes too |
//! | `errors` | the meaning of the servers' errors |
//! | `url`, `options` | from a URL to options |

mod bell;
mod cluster;
mod errors;
mod guesses;
mod lease_rows;
mod lease_statements;
mod options;
mod ringer;
mod row_lock_statements;
mod row_locks;
mod server;
mod url;

pub use lease_statements::mysql_schema;
pub use options::MySqlOptions;
pub use row_lock_statements::mysql_row_schema;

use crate::server::{Checked, Parts, ServerBackend};
use lease_rows::MySqlRows;
use options::Own;
use row_locks::MySqlRowLocks;
use sqlx::mysql::MySqlConnectOptions;
use std::time::Duration;
use tenure_core::{Background, Error};

/// Locks in a MySQL database, version 8.0.19 or later, or a MariaDB database, version 10.6.20, 10.11.10,
/// 11.2.6, 11.4.4 or later.
///
/// These servers have no notifications. So a process that waits keeps an extra connection asleep, and the client that
/// releases the lock interrupts that sleep. Of several processes that wait for one name, one is told; the others poll,
/// with growing pauses up to [`poll`](crate::ServerOptions::poll). The process that was told asks again as often, in
/// case it did not hear.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_sql::{MySqlBackend, MySqlOptions};
///
/// let options = MySqlOptions::new("mysql://app:secret@db.example/app");
/// let locks = Locks::new(MySqlBackend::connect(options).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub type MySqlBackend = ServerBackend<sqlx::MySql>;

impl Parts for sqlx::MySql {
    type Own = Own;
    type LeaseRows = MySqlRows;
    type RowLocks = MySqlRowLocks;
    type AdvisoryLocks = MySqlRowLocks;

    const SCHEMES: &[&str] = &["mysql", "mariadb"];
    const FORM: &str = "mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE";
    const PARAMETERS: &[&str] = &["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket"];
    const FILES: &[&str] = &["ssl-ca", "ssl-cert", "ssl-key"];

    fn poll(_: &Own) -> Duration {
        Duration::from_millis(200)
    }

    fn complete(connect: MySqlConnectOptions, _: &str) -> Result<MySqlConnectOptions, &'static str> {
        if connect.get_database().is_none() { Err("missing database") } else { Ok(connect) }
    }

    fn store(connect: &MySqlConnectOptions) -> String {
        server::store(connect)
    }

    fn lease_rows(options: Checked<Own>, connect: MySqlConnectOptions, background: Background) -> MySqlRows {
        MySqlRows::new(options, connect, background)
    }

    fn row_locks(options: Checked<Own>, connect: MySqlConnectOptions) -> MySqlRowLocks {
        MySqlRowLocks::new(options, connect)
    }

    fn advisory_locks(options: Checked<Own>, connect: MySqlConnectOptions) -> Result<MySqlRowLocks, Error> {
        if options.own.named {
            options.refuse_prefix("name")?;
        }
        Ok(MySqlRowLocks::new(options, connect))
    }
}

#[cfg(test)]
mod tests {
    use crate::server::options_tests::each_option_has_its_range;

    #[test]
    fn options_have_their_ranges() {
        each_option_has_its_range::<sqlx::MySql>("mysql", "ssl-mode=disabled", "ssl-mode=hunter2");
    }
}
