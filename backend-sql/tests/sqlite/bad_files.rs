//! Files that cannot be used: each a clear error with the path and what to do, and no panic.

use super::*;
use tenure_core::{Error, Locks};

pub(crate) async fn refused(options: SqliteOptions, says: &[&str]) {
    let error = SqliteBackend::open(options).await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }) && !error.is_retryable(), "{error:?}");
    let said = said(&error);
    for part in says {
        assert!(said.contains(part), "{said:?} does not say {part:?}");
    }
}

#[tokio::test]
async fn what_is_no_file_in_its_place() {
    let file = File::new();
    std::fs::create_dir(file.path()).unwrap();
    refused(file.options(), &["locks.db is a directory", "give the path of a file"]).await;
    if cfg!(unix) {
        let device = SqliteOptions::new("/dev/null");
        refused(device, &["/dev/null is not a regular file", "choose another path"]).await;
    }
}

#[tokio::test]
async fn a_missing_directory() {
    let file = File::new();
    let path = file.directory.path().join("no/such/locks.db");
    let options = SqliteOptions::new(&path);
    refused(
        options.clone(),
        &["no/such/locks.db", "does not exist; create it, or set create_directory=true"],
    )
    .await;
    SqliteBackend::open(options.create_directory(true)).await.unwrap();
    assert!(path.is_file());
}

#[tokio::test]
async fn a_file_in_place_of_the_directory() {
    let file = File::new();
    let plain = file.directory.path().join("plain");
    std::fs::write(&plain, "text").unwrap();
    let options = SqliteOptions::new(plain.join("locks.db"));
    refused(options.clone(), &["locks.db cannot be created", "plain is not a directory"]).await;
    refused(options.create_directory(true), &["the directory", "plain cannot be created"]).await;
}

#[tokio::test]
async fn no_database() {
    let file = File::new();
    std::fs::write(file.path(), "root:x:0:0:root:/root:/bin/sh\n".repeat(500)).unwrap();
    refused(file.options(), &["locks.db is not a SQLite database", "choose another path"]).await;
    let kept = std::fs::read_to_string(file.path()).unwrap();
    assert!(kept.starts_with("root:"), "the file was overwritten");
}

/// Beyond the header, or the first page; found when it is opened, or by a request.
#[tokio::test]
async fn a_damaged_file() {
    let file = File::new();
    let backend = file.open().await;
    let grant = granted(&backend, &claim("a")).await;
    backend.close().await;
    let mut bytes = std::fs::read(file.path()).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(file.path(), &bytes).unwrap();
    for error in [
        backend.try_acquire(&claim("a")).await.unwrap_err(),
        backend.release(&grant).await.unwrap_err(),
        backend.renew(std::slice::from_ref(&grant)).await.unwrap_err(),
    ] {
        assert!(!error.is_unavailable() && said(&error).contains("damaged"), "{error:?}");
    }
    backend.close().await;
    // The header stays, so that it is still a database.
    bytes[100..].fill(0xa5);
    std::fs::write(file.path(), bytes).unwrap();
    refused(file.options(), &["locks.db is damaged", "-wal"]).await;
}

#[tokio::test]
async fn a_file_that_cannot_be_written() {
    let file = File::new();
    file.open().await.close().await;
    let connect = SqliteConnectOptions::new().filename(file.path()).read_only(true);
    let backend = SqliteBackend::open_with(&connect, SqliteOptions::default()).await.unwrap();
    let error = Locks::new(backend).lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    let said = said(&error);
    assert!(said.contains("locks.db cannot be written") && said.contains("its directory"), "{said}");
}

#[tokio::test]
async fn a_file_without_a_write_ahead_log() {
    let file = File::new();
    file.open().await.close().await;
    let connect = SqliteConnectOptions::new().filename(file.path()).immutable(true);
    let error = SqliteBackend::open_with(&connect, SqliteOptions::default()).await.unwrap_err();
    assert!(said(&error).contains("cannot have a write-ahead log"), "{}", said(&error));
}

/// The bound on pages stands for the disk's: SQLite answers the same.
#[tokio::test]
async fn a_full_disk() {
    let file = File::new();
    file.open().await.close().await;
    let pages = file.number("PRAGMA page_count").await;
    let connect =
        SqliteConnectOptions::new().filename(file.path()).pragma("max_page_count", pages.to_string());
    let locks = Locks::new(SqliteBackend::open_with(&connect, SqliteOptions::default()).await.unwrap());
    let mut guards = Vec::new();
    let error = loop {
        let name = format!("{}{}", "x".repeat(150), guards.len());
        match locks.lock(name).try_acquire().await {
            Ok(guard) => guards.push(guard.unwrap()),
            Err(error) => break error,
        }
        assert!(guards.len() < 1000, "the file never got full");
    };
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    assert!(said(&error).contains("is full; make room"), "{}", said(&error));
    // Nothing is lost: what was held is held, and can be renewed and released.
    let held = file.open().await.list("").await.unwrap().len();
    assert_eq!(held, guards.len());
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// The row that says yes comes before the commit: a commit that fails must not be taken for a grant.
#[tokio::test]
async fn a_commit_that_fails() {
    let file = File::new();
    let backend = file.open().await;
    let grant = granted(&backend, &claim("held")).await;
    file.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)").await;
    file.execute("CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)").await;
    for event in [
        "CREATE TRIGGER insert_orphan AFTER INSERT ON tenure_locks BEGIN INSERT INTO child VALUES (1); END",
        "CREATE TRIGGER update_orphan AFTER UPDATE ON tenure_locks BEGIN INSERT INTO child VALUES (1); END",
    ] {
        file.execute(event).await;
    }
    for error in [
        backend.try_acquire(&claim("a")).await.map(drop).unwrap_err(),
        backend.release(&grant).await.map(drop).unwrap_err(),
        backend.renew(std::slice::from_ref(&grant)).await.map(drop).unwrap_err(),
    ] {
        assert!(!error.is_unavailable() && said(&error).contains("FOREIGN KEY"), "{error:?}");
    }
    let names = backend.list("").await.unwrap();
    assert_eq!(names.iter().map(|holder| &*holder.name).collect::<Vec<_>>(), ["held"]);
}

#[tokio::test]
async fn a_missing_table_that_may_not_be_created() {
    let file = File::new();
    let options = file.options().create_table(false);
    refused(options.clone(), &["locks.db has no table tenure_locks", "tenure schema sqlite"]).await;
    let mut connection = file.raw().await;
    let schema = tenure_sql::sqlite_schema("tenure_locks").unwrap();
    sqlx::query(sqlx::AssertSqlSafe(schema)).execute(&mut connection).await.unwrap();
    granted(&SqliteBackend::open(options).await.unwrap(), &claim("a")).await;
}

#[tokio::test]
async fn a_table_of_another_shape() {
    for (sql, says) in [
        ("CREATE TABLE tenure_locks (id INTEGER PRIMARY KEY, name TEXT)", "has no column named"),
        ("CREATE VIEW tenure_locks AS SELECT 1 AS name", "view"),
        (
            "CREATE TABLE tenure_locks (prefix, name, version, token, claim, mode, since, expires_at, awaited_until, awaited_by, \
             label, host, pid, record)",
            "ON CONFLICT",
        ),
    ] {
        let file = File::new();
        file.execute(sql).await;
        refused(file.options(), &["the table tenure_locks in", "does not match tenure's schema", says]).await;
    }
}

#[tokio::test]
async fn a_table_that_goes_away() {
    let file = File::new();
    let backend = file.open().await;
    file.execute("DROP TABLE tenure_locks").await;
    let error = backend.try_acquire(&claim("a")).await.unwrap_err();
    assert!(!error.is_unavailable() && error.to_string().contains("has no table tenure_locks"), "{error}");
    // The next request opens the file anew, and creates the table as the options say.
    granted(&backend, &claim("a")).await;
}

#[tokio::test]
async fn a_database_in_memory() {
    let connect: SqliteConnectOptions = "sqlite::memory:".parse().unwrap();
    let error = SqliteBackend::open_with(&connect, SqliteOptions::default()).await.unwrap_err();
    assert!(said(&error).contains("memory:"), "{}", said(&error));
}
