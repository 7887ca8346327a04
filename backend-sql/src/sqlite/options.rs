//! The options of a SQLite file.

use crate::{
    options::{self, check_prefix},
    table::{DEFAULT_TABLE, TableName},
};
use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};
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
    table: String,
    prefix: String,
    poll: Duration,
    fair: bool,
    busy_timeout: Duration,
    create_table: bool,
    create_directory: bool,
}

/// Checked options, each within its range.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) path: PathBuf,
    pub(super) table: TableName,
    pub(super) prefix: String,
    pub(super) poll: Duration,
    pub(super) fair: bool,
    pub(super) busy_timeout: Duration,
    pub(super) create_table: bool,
    pub(super) create_directory: bool,
}

impl SqliteOptions {
    /// The range of [`poll`](Self::poll).
    pub const POLL_RANGE: RangeInclusive<Duration> = options::POLL;
    /// The range of [`busy_timeout`](Self::busy_timeout).
    pub const BUSY_TIMEOUT_RANGE: RangeInclusive<Duration> = options::PATIENCE;

    /// Uses the file at `path`, which is created if it is missing, with default options.
    ///
    /// A relative path starts at the program's working directory when it opens the file. The file must be on a local
    /// disk: write-ahead logging needs memory that all its users share. On Unix the file is created for this user
    /// alone, and one that all users may write is refused.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            table: DEFAULT_TABLE.to_owned(),
            prefix: String::new(),
            poll: Duration::from_millis(50),
            fair: false,
            busy_timeout: Duration::from_secs(5),
            create_table: true,
            create_directory: false,
        }
    }

    pub(super) fn at(mut self, path: &Path) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Sets the table: 1 to 63 letters, digits and underscores. Default: `tenure_locks`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets the namespace: up to 200 bytes without control characters. Names of different prefixes never meet. Default:
    /// empty.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the longest time between two attempts of a waiter: 1 ms to 1 minute. The time starts at a millisecond and
    /// grows up to this. Default: 50 ms.
    pub fn poll(mut self, longest: Duration) -> Self {
        self.poll = longest;
        self
    }

    /// Sets whether the waiters of all clients are served in the order in which they came. All clients of a name must
    /// agree on it. Default: `false`.
    ///
    /// If so, each waiting client writes to the file every 1.5 s to keep its place. One that dies delays those behind
    /// it by at most 3 s.
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// Sets how long a request waits while other connections write to the file, before the store counts as unavailable:
    /// 1 ms to 10 minutes. Default: 5 s.
    pub fn busy_timeout(mut self, longest: Duration) -> Self {
        self.busy_timeout = longest;
        self
    }

    /// Sets whether the table is created if it is missing. To create it by hand, see
    /// [`sqlite_schema`](super::sqlite_schema). Default: `true`.
    pub fn create_table(mut self, create: bool) -> Self {
        self.create_table = create;
        self
    }

    /// Sets whether missing parent directories are created, for this user alone. Default: `false`, because a missing
    /// directory is more often a mistake in the path or a disk that is not mounted.
    pub fn create_directory(mut self, create: bool) -> Self {
        self.create_directory = create;
        self
    }

    pub(super) fn check(self) -> Result<Checked, Error> {
        Ok(Checked {
            path: check_path(&self.path)?,
            table: TableName::new(&self.table)?,
            prefix: check_prefix(self.prefix)?,
            poll: Error::check_range("poll", self.poll, &Self::POLL_RANGE)?,
            fair: self.fair,
            busy_timeout: Error::check_range("busy_timeout", self.busy_timeout, &Self::BUSY_TIMEOUT_RANGE)?,
            create_table: self.create_table,
            create_directory: self.create_directory,
        })
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
    fn each_option_has_its_range() {
        let file = || SqliteOptions::new("locks.db");
        assert!(file().check().unwrap().path.is_absolute());
        refused(SqliteOptions::new(""), "path");
        refused(SqliteOptions::new(":memory:"), "path");
        refused(SqliteOptions::new("a\0b"), "path");
        refused(file().table("a b"), "table");
        refused(file().prefix("a\nb"), "prefix");
        refused(file().prefix("x".repeat(201)), "prefix");
        refused(file().poll(Duration::ZERO), "poll");
        refused(file().poll(Duration::from_secs(61)), "poll");
        refused(file().busy_timeout(Duration::ZERO), "busy_timeout");
        refused(file().busy_timeout(Duration::MAX), "busy_timeout");
    }
}
