//! `tenure schema`: prints the SQL of the tables, for users who create them by hand.

use crate::{
    args::{self, Dialect, Strategy},
    exit::{self, Failure},
};
use std::process::ExitCode;

/// The default names of the tables.
const LEASE_ROWS: &str = "tenure_locks";
const ROW_LOCKS: &str = "tenure_row_locks";

pub(crate) fn schema(args: &args::Schema) -> Result<ExitCode, Failure> {
    let given = args.table.as_deref();
    let lease_rows = match args.dialect {
        Dialect::Sqlite => tenure_sql::sqlite_schema,
        Dialect::Postgres => tenure_sql::postgres_schema,
        Dialect::Mysql => tenure_sql::mysql_schema,
    };
    if args.strategy == Strategy::LeaseRow {
        exit::print(&lease_rows(given.unwrap_or(LEASE_ROWS))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row_locks = match args.dialect {
        Dialect::Sqlite => {
            let text = "SQLite has no row locks; use --strategy lease-row";
            return Err(Failure::Usage(text.to_owned()));
        }
        Dialect::Postgres => tenure_sql::postgres_row_schema,
        Dialect::Mysql => tenure_sql::mysql_row_schema,
    };
    let table = given.unwrap_or(ROW_LOCKS);
    exit::print(&row_locks(table)?)?;
    // Their latches are lease rows. Beside a table with a longer name there are none.
    if let Ok(latches) = lease_rows(&format!("{table}_latches")) {
        exit::print(&format!("\n{latches}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
