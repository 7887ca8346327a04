//! PostgreSQL.

use crate::admin::{Admin, unknown};
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup, hold_all};
use crate::way::Way;
use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tenure_conformance::saboteur::{Hurt, Injection};
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Url;

/// One PostgreSQL server.
#[derive(Debug)]
pub(crate) struct Postgres;

/// The user, who owns the server, the password, and the database.
pub(crate) const NAME: &str = "tenure";

/// Its password as the server keeps it, after one round of hashing. After the usual 4,096 the suite, which is not
/// optimized and opens thousands of connections, spent two thirds of its own processor time on that.
pub(crate) const SECRET: &str = "SCRAM-SHA-256$1:dGVudXJlJ3Mgc2VydmVycw==\
     $FnR1pqXVw3Y+sMbg+66muwbPdYWhR0VnXmHwsBP7PX0=:/+uZ2Nv1fPXVHp97/tQmfTt8S4OIqM0Qc0tKryfYE0c=";

/// The connections that are held to fill it up have not said who they are; it must be patient with them. It has
/// few connections, so that a client that uses them up is seen. A dozen cases run at once, each with several clients of four
/// connections or as many as it has row locks, and as many again in the background.
const OPTIONS: [&str; 4] = ["-c", "authentication_timeout=600s", "-c", "max_connections=300"];

/// It does not wait for the disk: a killed process forgets nothing that it handed to the system, and a disk that other
/// programs keep busy for seconds says nothing about a lock.
const OFF_DISK: [&str; 2] = ["-c", "fsync=off"];

#[async_trait]
impl Recipe for Postgres {
    fn family(&self) -> &'static str {
        "postgres"
    }

    fn image(&self) -> &'static str {
        "postgres:15"
    }

    fn port(&self) -> u16 {
        5432
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        image
            .with_env_var("POSTGRES_USER", NAME)
            .with_env_var("POSTGRES_PASSWORD", NAME)
            .with_env_var("POSTGRES_DB", NAME)
            .with_copy_to("/docker-entrypoint-initdb.d/secret.sql", keep_secret().into_bytes())
            .with_cmd(["postgres"].into_iter().chain(OPTIONS).chain(OFF_DISK))
    }

    /// Debian keeps the programs of each version out of `PATH`.
    fn program(&self) -> Result<PathBuf, String> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
        let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
        let newest = versions.map(|entry| entry.path()).max_by_key(|path| version(path));
        let program = newest.map(|path| path.join("bin/postgres")).filter(|path| path.is_file());
        program.map_or_else(|| find("postgres"), Ok)
    }

    fn user(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn prepare(&self, setup: &Setup<'_>) -> io::Result<()> {
        fs::write(setup.home.join("password"), NAME)?;
        let mut initdb = (setup.command)(&setup.program.with_file_name("initdb"));
        initdb.args(["--pgdata=data", "--username", NAME, "--auth=scram-sha-256", "--pwfile=password"]);
        succeed(initdb.args(["--encoding=UTF8", "--no-locale", "--no-sync"]))?;
        // One server process that reads commands from a file.
        let create = setup.home.join("create.sql");
        fs::write(&create, format!("CREATE DATABASE {NAME}\n{}", keep_secret()))?;
        let mut single = (setup.command)(setup.program);
        succeed(single.args(["--single", "-D", "data", "postgres"]).stdin(fs::File::open(create)?))
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        let mut command = (setup.command)(setup.program);
        command
            .args(["-D", "data", "-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
            .args(OPTIONS)
            .args(OFF_DISK.iter().filter(|_| !setup.on_disk));
        // What it keeps outside its directory, a kill would leave behind.
        command.args(["-c", "unix_socket_directories=", "-c", "dynamic_shared_memory_type=mmap"]);
        Ok(command)
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("postgres://{NAME}:{NAME}@{address}/{NAME}")
    }

    fn may_proxy(&self, url: &Url) -> bool {
        // The one mode that looks at the host's name.
        !url.query_pairs().any(|(key, value)| key == "sslmode" && value == "verify-full")
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        let connected = async { connect(admin).await?.close().await };
        connected.await.map_err(io::Error::other)
    }

    fn hurts(&self, way: &Way) -> &'static [Hurt] {
        match way {
            // Others may have their locks in its tables.
            Way::Environment { .. } => &[Hurt::TerminateBackends, Hurt::ReadOnly, Hurt::FillConnections],
            _ => &[
                Hurt::TerminateBackends,
                Hurt::ReadOnly,
                Hurt::FillConnections,
                Hurt::FillDisk,
                Hurt::LockRows,
                Hurt::LockTables,
            ],
        }
    }

    fn ends(&self) -> &'static [&'static str] {
        &["COMMIT", "ROLLBACK", "EXECUTE tenure_end"]
    }

    async fn inject(&self, admin: &Admin<'_>, injection: Injection) -> io::Result<()> {
        let done = match injection.hurt {
            Hurt::TerminateBackends => terminate(admin).await,
            Hurt::ReadOnly => set_read_only(admin, "on").await,
            hurt => return Err(unknown(hurt)),
        };
        done.map_err(io::Error::other)
    }

    async fn undo(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<()> {
        match hurt {
            Hurt::ReadOnly => set_read_only(admin, "off").await.map_err(io::Error::other),
            hurt => Err(unknown(hurt)),
        }
    }

    async fn hold(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<Held> {
        if hurt == Hurt::FillConnections {
            return fill(admin).await;
        }
        let mut session = connect(admin).await.map_err(io::Error::other)?;
        let held = match hurt {
            Hurt::FillDisk => fill_disk(&mut session).await,
            Hurt::LockRows => lock_rows(&mut session).await,
            Hurt::LockTables => lock_tables(&mut session).await,
            _ => return Err(unknown(hurt)),
        };
        held.map_err(io::Error::other)?;
        Ok(Held::Postgres { session })
    }

    async fn free(&self, held: Held) -> io::Result<()> {
        if let Held::Postgres { mut session } = held {
            // When the server has ended it meanwhile, its transaction has ended too.
            let _ = sqlx::raw_sql("ROLLBACK").execute(&mut session).await;
        }
        Ok(())
    }
}

/// A connection has its place from the moment it says for whom it is, before it shows a password.
async fn fill(admin: &Admin<'_>) -> io::Result<Held> {
    let url = Url::parse(&admin.url).map_err(io::Error::other)?;
    let mut startup = 196_608_u32.to_be_bytes().to_vec();
    for word in ["user", url.username(), "database", url.path().trim_start_matches('/'), ""] {
        startup.extend(word.bytes().chain([0]));
    }
    let length = u32::try_from(startup.len() + 4).map_err(io::Error::other)?;
    let startup = [&length.to_be_bytes()[..], &startup].concat();
    let greet = async |mut stream: tokio::net::TcpStream| {
        stream.write_all(&startup).await?;
        Ok((stream.read_u8().await? == b'R').then_some(stream))
    };
    hold_all(admin.address, greet).await
}

/// One line, because a server that reads commands from a file takes each line for one.
fn keep_secret() -> String {
    format!("ALTER ROLE {NAME} PASSWORD '{SECRET}'\n")
}

/// Tenure's tables.
async fn tables(session: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let tables = "SELECT quote_ident(tablename) FROM pg_tables \
                  WHERE schemaname = current_schema() AND tablename LIKE 'tenure%'";
    sqlx::query_scalar(tables).fetch_all(session).await
}

async fn execute(session: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(session).await.map(drop)
}

/// Begins a transaction that locks the rows which nobody has locked.
async fn lock_rows(session: &mut PgConnection) -> Result<(), sqlx::Error> {
    let tables = tables(session).await?;
    execute(session, "BEGIN".into()).await?;
    for table in tables {
        execute(session, format!("SELECT 1 FROM {table} FOR UPDATE SKIP LOCKED")).await?;
    }
    Ok(())
}

/// Begins a transaction that locks the tables, but those that others use for longer than it waits.
async fn lock_tables(session: &mut PgConnection) -> Result<(), sqlx::Error> {
    let tables = tables(session).await?;
    execute(session, format!("BEGIN; {PATIENCE}")).await?;
    for table in tables {
        let lock = format!("SAVEPOINT one; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        if !in_time(execute(session, lock).await)? {
            execute(session, "ROLLBACK TO one".into()).await?;
        }
    }
    Ok(())
}

/// Begins a transaction with which the disk is full: as long as it has this lock, a trigger refuses each new row and each
/// change, as the server would without room. It has none of the tables' locks, so it ends whatever others do.
async fn fill_disk(session: &mut PgConnection) -> Result<(), sqlx::Error> {
    let function = "CREATE SCHEMA IF NOT EXISTS conformance; \
         CREATE OR REPLACE FUNCTION conformance.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ \
         BEGIN IF NOT pg_try_advisory_xact_lock_shared(53100) THEN \
         RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; \
         END IF; RETURN NEW; END $$";
    execute(session, function.into()).await?;
    for table in tables(session).await? {
        let there = format!(
            "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = '{table}'::regclass AND tgname = 'refuse')"
        );
        if sqlx::query_scalar(AssertSqlSafe(there)).fetch_one(&mut *session).await? {
            continue;
        }
        let trigger = format!(
            "BEGIN; {PATIENCE}; CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} \
             FOR EACH ROW EXECUTE FUNCTION conformance.refuse(); COMMIT"
        );
        if !in_time(execute(session, trigger).await)? {
            execute(session, "ROLLBACK".into()).await?;
        }
    }
    execute(session, "BEGIN; SELECT pg_advisory_xact_lock(53100)".into()).await
}

/// How long a transaction waits for a table.
const PATIENCE: &str = "SET LOCAL lock_timeout = '1s'";

/// Whether it was not waited for too long.
fn in_time(done: Result<(), sqlx::Error>) -> Result<bool, sqlx::Error> {
    match done {
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("55P03") => Ok(false),
        done => done.map(|()| true),
    }
}

/// Ends every other client's backend, and returns when they have gone.
async fn terminate(admin: &Admin<'_>) -> Result<(), sqlx::Error> {
    let mut connection = connect(admin).await?;
    let others = "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity \
                  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let rows = sqlx::query(others).fetch_all(&mut connection).await?;
    let ended: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    let left = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1)";
    loop {
        let left: i64 = sqlx::query_scalar(left).bind(&ended).fetch_one(&mut connection).await?;
        if left == 0 {
            return connection.close().await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes every transaction that begins from now on read-only, or not, and returns when that is so.
async fn set_read_only(admin: &Admin<'_>, value: &'static str) -> Result<(), sqlx::Error> {
    let mut connection = connect(admin).await?;
    let set = match value {
        "on" => "ALTER SYSTEM SET default_transaction_read_only = on",
        _ => "ALTER SYSTEM RESET default_transaction_read_only",
    };
    for statement in [set, "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    // The server tells its backends before it serves a connection that knows.
    let options: PgConnectOptions = admin.url.parse()?;
    let show = "SHOW default_transaction_read_only";
    loop {
        let now: String = sqlx::query_scalar(show).fetch_one(&mut options.connect().await?).await?;
        if now == value {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A connection that may write whatever else may not.
async fn connect(admin: &Admin<'_>) -> Result<PgConnection, sqlx::Error> {
    let options: PgConnectOptions = admin.url.parse()?;
    options.options([("default_transaction_read_only", "off")]).connect().await
}

/// Runs a command that sets a server up.
pub(crate) fn succeed(command: &mut Command) -> io::Result<()> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let (program, said) =
        (command.get_program().to_string_lossy(), String::from_utf8_lossy(&said).trim().to_owned());
    Err(io::Error::other(format!("{program} ({}): {said}", output.status)))
}
