//! `tenure schema`: the table, for those who create it by hand.

use crate::{
    args,
    exit::{self, Failure},
};
use std::process::ExitCode;

/// What the table is called unless the URL says otherwise.
const TABLE: &str = "tenure_locks";

pub(crate) fn schema(args: &args::Schema) -> Result<ExitCode, Failure> {
    let ddl = match args.dialect {
        args::Dialect::Sqlite => tenure_sql::sqlite_schema(TABLE)?,
        args::Dialect::Postgres => tenure_sql::postgres_schema(TABLE)?,
        args::Dialect::Mysql => tenure_sql::mysql_schema(TABLE)?,
    };
    exit::print(&ddl)?;
    Ok(ExitCode::SUCCESS)
}
