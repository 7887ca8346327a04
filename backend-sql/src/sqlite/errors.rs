//! The meaning of SQLite's errors for locks, and what to do about them.

use crate::{
    explained::Explained,
    table::{DEFAULT_TABLE, schema_command},
};
use sqlx::error::DatabaseError;
use std::{path::Path, time::Duration};
use tenure_core::StoreError;

/// Where the error came from.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) path: &'a Path,
    pub(super) table: &'a str,
    pub(super) busy_timeout: Duration,
}

/// [Result codes](https://www.sqlite.org/rescode.html), the primary ones.
mod code {
    pub(super) const ERROR: u32 = 1;
    pub(super) const PERM: u32 = 3;
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const NOMEM: u32 = 7;
    pub(super) const READONLY: u32 = 8;
    pub(super) const INTERRUPT: u32 = 9;
    pub(super) const IOERR: u32 = 10;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const PROTOCOL: u32 = 15;
    pub(super) const SCHEMA: u32 = 17;
    pub(super) const AUTH: u32 = 23;
    pub(super) const NOTADB: u32 = 26;
}

/// I/O errors that do not pass: `SHORT_READ`, a file that ends too early, and `SHMMAP`, a file system without shared
/// memory.
const LASTING: [u32; 2] = [522, 5386];

/// The primary result code: the lowest byte of the extended one from sqlx.
fn primary(error: &dyn DatabaseError) -> Option<u32> {
    extended(error).map(|code| code & 0xff)
}

fn extended(error: &dyn DatabaseError) -> Option<u32> {
    error.code()?.parse().ok()
}

/// Whether another connection was in the way, so that the same statement may succeed a moment later.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(primary)
        .is_some_and(|primary| matches!(primary, code::BUSY | code::LOCKED | code::PROTOCOL))
}

/// The meaning of a failed request.
pub(super) fn explain(origin: Origin<'_>, source: sqlx::Error) -> StoreError {
    let Some(error) = source.as_database_error() else { return without_code(origin, source) };
    let (path, table) = (origin.path.display(), origin.table);
    let (passing, what) = match primary(error).unwrap_or(code::ERROR) {
        code::BUSY | code::LOCKED | code::PROTOCOL => {
            let waited = origin.busy_timeout;
            (
                true,
                format!(
                    "other connections kept {path} locked for {waited:?}; look for a transaction left open"
                ),
            )
        }
        code::INTERRUPT | code::SCHEMA | code::NOMEM => (true, format!("{path}: {}", error.message())),
        code::READONLY | code::PERM | code::AUTH => (
            false,
            format!(
                "{path} cannot be written; this user needs write permission on the file and on its directory"
            ),
        ),
        code::FULL => (false, format!("the disk of {path} is full; make room on it")),
        code::IOERR => {
            let lasts = extended(error).is_some_and(|code| LASTING.contains(&code));
            (!lasts, format!("{path}: {}; check its disk, which must be a local one", error.message()))
        }
        code::CANTOPEN => match no_descriptor(origin.path) {
            Some(why) => (true, why),
            None => (false, cannot_open(origin.path)),
        },
        code::NOTADB => {
            (false, format!("{path} is not a SQLite database; choose another path, or move that file"))
        }
        code::CORRUPT => (
            false,
            format!(
                "{path} is damaged; stop the programs that use it, then restore it, or delete it with its -wal and \
                 -shm files if it holds nothing but locks"
            ),
        ),
        code::ERROR if error.message().starts_with("no such table") => (false, missing_table(origin)),
        code::ERROR => (
            false,
            format!(
                "the table {table} in {path} does not match tenure's schema ({}); choose another table, or rename that \
                 one",
                error.message()
            ),
        ),
        _ => (false, format!("{path}: {}", error.message())),
    };
    let explained = Explained::new(what, source);
    if passing { StoreError::unavailable(explained) } else { StoreError::failed(explained) }
}

/// The message for a missing table.
pub(super) fn missing_table(Origin { path, table, .. }: Origin<'_>) -> String {
    let (path, schema) = (path.display(), schema_command("sqlite", table, DEFAULT_TABLE));
    format!(
        "{path} has no table {table}; create it with the DDL that `{schema}` prints, or set create_table=true in the URL"
    )
}

/// The message for files that were removed or replaced while this client had them open.
pub(super) fn removed(path: &Path) -> String {
    let path = path.display();
    format!("{path}, or the -wal or -shm file beside it, was removed or replaced while it was in use")
}

/// The message for a file that others use although a file beside it is missing.
pub(super) fn in_use(Origin { path, busy_timeout, .. }: Origin<'_>) -> String {
    let path = path.display();
    format!(
        "other connections kept {path} locked for {busy_timeout:?}, and its -wal or -shm file is missing; look for a \
         transaction left open, or, if that file was removed, for a program that still has it open (`fuser -v {path}`)"
    )
}

/// The message for a journal mode other than write-ahead.
pub(super) fn no_log(Origin { path, .. }: Origin<'_>, mode: &[String]) -> String {
    let path = path.display();
    match mode {
        [mode] if mode == "memory" => {
            format!("{path} is a database in memory; use a file, or the memory store, memory:")
        }
        _ => format!(
            "{path} cannot have a write-ahead log (its journal mode stays {mode:?}); put it on a local disk"
        ),
    }
}

fn without_code(origin: Origin<'_>, source: sqlx::Error) -> StoreError {
    let path = origin.path.display();
    match source {
        // The connection's thread is gone; the next request opens another connection.
        sqlx::Error::WorkerCrashed => {
            StoreError::unavailable(Explained::new(format!("the connection to {path} was lost"), source))
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) => {
            let table = origin.table;
            StoreError::failed(Explained::new(
                format!("the table {table} in {path} does not match tenure's schema; choose another table"),
                source,
            ))
        }
        source => StoreError::failed(Explained::new(format!("{path}: {source}"), source)),
    }
}

/// The message if the path is not a regular file: SQLite would open a device as a database.
pub(super) fn no_file(path: &Path) -> Option<String> {
    let shown = path.display();
    let kind = std::fs::metadata(path).ok()?.file_type();
    if kind.is_dir() {
        Some(format!("{shown} is a directory; give the path of a file in it"))
    } else if kind.is_file() {
        None
    } else {
        Some(format!("{shown} is not a regular file; choose another path"))
    }
}

/// The message if this process, or the machine, can open no more files. SQLite does not tell. To find out, the directory
/// is opened: if the database were, closing it would end SQLite's locks on it.
fn no_descriptor(path: &Path) -> Option<String> {
    let error = std::fs::read_dir(path.parent()?).err()?;
    // `ENFILE` and `EMFILE`, the same on every Unix.
    let is_it = cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24));
    is_it.then(|| format!("{} cannot be opened: {error}; raise that limit (ulimit -n)", path.display()))
}

fn cannot_open(path: &Path) -> String {
    let shown = path.display();
    let directory = path.parent().unwrap_or(path);
    if !directory.exists() {
        format!(
            "{shown} cannot be created: the directory {} does not exist; create it, or set create_directory=true in the URL",
            directory.display()
        )
    } else if !directory.is_dir() {
        format!("{shown} cannot be created: {} is not a directory", directory.display())
    } else {
        format!(
            "{shown} cannot be opened; this user needs read and write permission on the file and on its directory"
        )
    }
}
