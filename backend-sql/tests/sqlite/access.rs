//! Permissions of the file: a user who can write to it can acquire and break any lock.

use crate::{File, bad_files::refused, claim, granted, said};
use std::{
    fs::{Permissions, metadata, set_permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};
use tenure_core::Backend;
use tenure_sql::{SqliteBackend, SqliteOptions};

fn mode(path: &Path) -> u32 {
    let metadata = metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    metadata.permissions().mode() & 0o7777
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A file and what SQLite puts beside it.
fn modes(path: &Path) -> [u32; 3] {
    ["", "-wal", "-shm"].map(|end| mode(Path::new(&format!("{}{end}", path.display()))))
}

/// Also in a directory that every user can write to, as volumes of containers are.
#[tokio::test]
async fn what_is_created_is_for_its_owner_alone() {
    let file = File::new();
    set_mode(file.directory.path(), 0o777);
    granted(&file.open().await, &claim("a")).await;
    assert_eq!(mode(&file.path()), 0o600);
    let path = file.directory.path().join("made/for/locks.db");
    let backend = SqliteBackend::open(SqliteOptions::new(&path).create_directory(true)).await.unwrap();
    granted(&backend, &claim("a")).await;
    assert_eq!(modes(&path), [0o600; 3]);
    for directory in ["made", "made/for"] {
        assert_eq!(mode(&file.directory.path().join(directory)), 0o700, "{directory}");
    }
}

/// Its mode is the operator's choice: shared with a group, or private.
#[tokio::test]
async fn a_file_that_is_there_keeps_its_mode() {
    for shared in [0o640, 0o664] {
        let file = File::new();
        std::fs::write(file.path(), "").unwrap();
        set_mode(file.path(), shared);
        let backend = file.open().await;
        granted(&backend, &claim("a")).await;
        assert_eq!(modes(&file.path()), [shared; 3]);
    }
}

#[tokio::test]
async fn a_file_that_everybody_may_write() {
    let file = File::new();
    file.open().await.close().await;
    for open in [0o666, 0o602, 0o777] {
        set_mode(file.path(), open);
        let (says, advice) =
            (format!("locks.db has the mode {open:04o}"), format!("chmod o-w {}", file.path().display()));
        refused(file.options(), &[&says, "every user can write to it", &advice, "group"]).await;
        let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(file.path());
        let error = SqliteBackend::open_with(&connect, SqliteOptions::default()).await.unwrap_err();
        assert!(said(&error).contains("chmod o-w"), "{error}");
    }
    set_mode(file.path(), 0o660);
    granted(&file.open().await, &claim("a")).await;
}
