//! `tenure schema`: prints the tables, for those who create them by hand.

use crate::{
    args::{self, Dialect, Strategy},
    exit::{self, Failure},
};
use std::process::ExitCode;

/// The default names of the tables.
const LEASE_ROWS: &str = "tenure_locks";
const ROW_LOCKS: &str = "tenure_row_locks";
/// With row locks, latches live in a table of lease rows.
const ROW_LOCK_LATCHES: &str = "tenure_row_locks_latches";

pub(crate) fn schema(args: &args::Schema) -> Result<ExitCode, Failure> {
    let ddl = match (args.dialect, args.strategy) {
        (Dialect::Sqlite, Strategy::LeaseRow) => tenure_sql::sqlite_schema(LEASE_ROWS)?,
        (Dialect::Postgres, Strategy::LeaseRow) => tenure_sql::postgres_schema(LEASE_ROWS)?,
        (Dialect::Mysql, Strategy::LeaseRow) => tenure_sql::mysql_schema(LEASE_ROWS)?,
        (Dialect::Postgres, Strategy::RowLock) => tenure_sql::postgres_row_schema(ROW_LOCKS)?,
        (Dialect::Mysql, Strategy::RowLock) => tenure_sql::mysql_row_schema(ROW_LOCKS)?,
        (Dialect::Sqlite, Strategy::RowLock) => {
            let text = "SQLite has no row locks; use --strategy lease-row";
            return Err(Failure::Usage(text.to_owned()));
        }
    };
    let latches = match (args.dialect, args.strategy) {
        // Latches are rows of the same table.
        (_, Strategy::LeaseRow) | (Dialect::Sqlite, _) => None,
        (Dialect::Postgres, Strategy::RowLock) => Some(tenure_sql::postgres_schema(ROW_LOCK_LATCHES)?),
        (Dialect::Mysql, Strategy::RowLock) => Some(tenure_sql::mysql_schema(ROW_LOCK_LATCHES)?),
    };
    exit::print(&ddl)?;
    if let Some(latches) = latches {
        exit::print(&format!("\n{latches}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
