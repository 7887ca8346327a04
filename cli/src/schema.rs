//! `tenure schema`: the table, for those who create it by hand.

use crate::{
    args,
    exit::{self, Failure},
};
use std::process::ExitCode;

pub(crate) fn schema(args: &args::Schema) -> Result<ExitCode, Failure> {
    let ddl = match args.dialect {
        args::Dialect::Sqlite => tenure_sql::sqlite_schema("tenure_locks")?,
    };
    exit::print(&ddl)?;
    Ok(ExitCode::SUCCESS)
}
