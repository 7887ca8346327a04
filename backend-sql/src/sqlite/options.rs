//! The options of a SQLite file.

use crate::table::TableName;
use std::path::{Path, PathBuf};
use tenure_core::Error;

/// Options of a SQLite file: its path, the table, and the timeouts. [`SqliteBackend::open`](super::SqliteBackend::open)
/// checks them before it touches the file.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_sql::SqliteOptions;
///
/// let options = SqliteOptions::new("/var/lib/app/locks.db").prefix("billing").poll(Duration::from_millis(20));
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until the file is opened"]
pub struct SqliteOptions {
    path: PathBuf,
    values: Values,
}

tenure_core::options! {
    /// The options that are set in the same way in code and in a URL.
    pub(super) struct Values for SqliteOptions;

    /// Sets the namespace: up to 200 bytes without control characters. Names of different prefixes never meet.
    prefix: Prefix = "";

    /// Sets the table: 1 to 63 letters, digits and underscores.
    table: Text(TableName::FORM) = "tenure_locks", "the table";

    /// Sets whether the table is created if it is missing. To create it by hand, see
    /// [`sqlite_schema`](super::sqlite_schema).
    create_table: bool = true, "whether the table is created when it is missing";

    /// Sets whether missing parent directories are created, for this user alone.
    ///
    /// They are not by default, because a missing directory is more often a mistake in the path or a disk that is not
    /// mounted.
    create_directory: bool = false, "whether the file's directory is created when it is missing";

    /// Sets the longest time between two attempts of a waiter. The time starts at a millisecond and grows up to this.
    poll: Duration = 50 ms, POLL_RANGE = 1 ms..=1 min, "the longest time between two attempts of a waiter";

    /// Sets how long a request waits while other connections write to the file, before the store counts as unavailable.
    busy_timeout: Duration = 5 s, BUSY_TIMEOUT_RANGE = 1 ms..=10 min,
        "how long a request waits while others write to the file";

    /// Sets whether the waiters of all clients are served in the order in which they came. All clients of a name must
    /// agree on it.
    ///
    /// If so, each waiting client writes to the file every 1.5 s to keep its place. One that dies delays those behind
    /// it by at most 3 s.
    fair: bool = false, "whether waiters of all clients are served in the order in which they came";
}

/// Checked options, each within its range.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) path: PathBuf,
    pub(super) table: TableName,
    pub(super) values: Values,
}

impl SqliteOptions {
    /// Uses the file at `path`, which is created if it is missing, with default options.
    ///
    /// A relative path starts at the program's working directory when it opens the file. The file must be on a local
    /// disk: write-ahead logging needs memory that all its users share. On Unix the file is created for this user
    /// alone, and one that all users may write is refused.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), values: Values::default() }
    }

    pub(super) fn at(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    pub(super) fn check(self) -> Result<Checked, Error> {
        let (path, values) = (check_path(&self.path)?, self.checked_values()?);
        Ok(Checked { path, table: TableName::new(&values.table)?, values })
    }
}

impl Default for SqliteOptions {
    /// Without a path, for [`SqliteBackend::open_with`](super::SqliteBackend::open_with).
    fn default() -> Self {
        Self::new("")
    }
}

/// An absolute path, so that a later change of directory does not change the file, and so that SQLite does not read it
/// as a URI or as `:memory:`.
fn check_path(given: &Path) -> Result<PathBuf, Error> {
    let shown = format!("{:?}", given.to_string_lossy());
    let wrong = |allowed: &str| Error::invalid_option("path", &shown, allowed);
    match given.to_str() {
        None => Err(wrong("a path in UTF-8")),
        Some("") => Err(wrong("the path of a file")),
        Some(text) if text.contains('\0') => Err(wrong("the path of a file, without NUL")),
        Some(":memory:") => Err(wrong(
            "a file, because each connection would have its own database in memory (for locks in memory: memory:)",
        )),
        Some(_) => std::path::absolute(given)
            .map_err(|error| Error::invalid_option("path", format!("{shown} ({error})"), "an absolute path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: SqliteOptions, option: &str) {
        let error = options.check().unwrap_err();
        assert!(
            matches!(&error, Error::InvalidOption { option: named, .. } if *named == option),
            "{error} does not name {option}"
        );
    }

    #[test]
    fn names_are_checked() {
        let file = || SqliteOptions::new("locks.db");
        assert!(file().check().unwrap().path.is_absolute());
        refused(SqliteOptions::new(""), "path");
        refused(SqliteOptions::new(":memory:"), "path");
        refused(SqliteOptions::new("a\0b"), "path");
        refused(file().table("a b"), "table");
        refused(file().prefix("a\nb"), "prefix");
        refused(file().prefix("x".repeat(201)), "prefix");
    }
}
