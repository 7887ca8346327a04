//! `tenure schema`: the tables, for those who create it by hand.

use crate::{
    args::{self, Dialect, Strategy},
    exit::{self, Failure},
};
use std::process::ExitCode;

/// What the tables are called unless the URL says otherwise.
const LEASE_ROWS: &str = "tenure_locks";
const ROW_LOCKS: &str = "tenure_row_locks";

pub(crate) fn schema(args: &args::Schema) -> Result<ExitCode, Failure> {
    let ddl = match (args.dialect, args.strategy) {
        (Dialect::Sqlite, Strategy::LeaseRow) => tenure_sql::sqlite_schema(LEASE_ROWS)?,
        (Dialect::Postgres, Strategy::LeaseRow) => tenure_sql::postgres_schema(LEASE_ROWS)?,
        (Dialect::Mysql, Strategy::LeaseRow) => tenure_sql::mysql_schema(LEASE_ROWS)?,
        (Dialect::Postgres, Strategy::RowLock) => tenure_sql::postgres_row_schema(ROW_LOCKS)?,
        (Dialect::Mysql, Strategy::RowLock) => tenure_sql::mysql_row_schema(ROW_LOCKS)?,
        (Dialect::Sqlite, Strategy::RowLock) => {
            let text = "SQLite has no row locks; it has --strategy lease-row";
            return Err(Failure::Usage(text.to_owned()));
        }
    };
    let latches = match (args.dialect, args.strategy) {
        // They have rows in the same table.
        (Dialect::Sqlite, _) => None,
        (Dialect::Postgres, Strategy::LeaseRow) => Some(tenure_sql::postgres_latch_schema(LEASE_ROWS)?),
        (Dialect::Postgres, Strategy::RowLock) => Some(tenure_sql::postgres_latch_schema(ROW_LOCKS)?),
        (Dialect::Mysql, Strategy::LeaseRow) => Some(tenure_sql::mysql_latch_schema(LEASE_ROWS)?),
        (Dialect::Mysql, Strategy::RowLock) => Some(tenure_sql::mysql_latch_schema(ROW_LOCKS)?),
    };
    exit::print(&ddl)?;
    if let Some(latches) = latches {
        exit::print(&format!("\n{latches}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
