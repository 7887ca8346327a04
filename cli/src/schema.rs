//! `tenure schema`: prints the SQL of the tables, for users who create them by hand.

use crate::{
    args::{self, Dialect, Strategy},
    exit::{self, Failure},
};
use std::process::ExitCode;

/// The default names of the tables.
const LEASE_ROWS: &str = "tenure_locks";
const ROW_LOCKS: &str = "tenure_row_locks";
const ADVISORY_LOCKS: &str = "tenure_advisory_locks";

pub(crate) fn schema(args: &args::Schema) -> Result<ExitCode, Failure> {
    let given = args.table.as_deref();
    let lease_rows = match args.dialect {
        Dialect::Sqlite => tenure_sql::sqlite_schema,
        Dialect::Postgres => tenure_sql::postgres_schema,
        Dialect::Mysql => tenure_sql::mysql_schema,
    };
    let table = given.unwrap_or(match args.strategy {
        Strategy::LeaseRow => LEASE_ROWS,
        Strategy::RowLock => ROW_LOCKS,
        Strategy::Advisory => ADVISORY_LOCKS,
    });
    let locks = match (args.strategy, args.dialect) {
        (Strategy::LeaseRow, _) => {
            exit::print(&lease_rows(table)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        (_, Dialect::Sqlite) => {
            let text = "SQLite supports only --strategy lease-row";
            return Err(Failure::Usage(text.to_owned()));
        }
        (Strategy::RowLock, Dialect::Postgres) => tenure_sql::postgres_row_schema,
        (Strategy::Advisory, Dialect::Postgres) => tenure_sql::postgres_advisory_schema,
        // User-level locks have the notes of row locks.
        (_, Dialect::Mysql) => tenure_sql::mysql_row_schema,
    };
    exit::print(&locks(table)?)?;
    // Their latches are lease rows. Beside a table with a longer name there are none.
    if let Ok(latches) = lease_rows(&format!("{table}_latches")) {
        exit::print(&format!("\n{latches}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
