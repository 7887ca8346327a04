//! MySQL and MariaDB.

use crate::admin::{Admin, Order, unknown};
use crate::postgres::succeed;
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup, cannot_hold, hold_all};
use crate::way::Way;
use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection, Row};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tenure_conformance::saboteur::Hurt;
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use url::Url;

/// One server of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mysql {
    Mysql,
    Mariadb,
}

/// The user, the password, and the database. The user does not own the server, or `read_only` would not hold it.
const NAME: &str = "tenure";

/// The administrator's password.
const ROOT: &str = "tenure-root";

/// The connections that are held to fill it up have not said who they are; it must be patient with them, and not
/// shut out their host afterwards. It has few connections, so that a client that uses them up is seen; as many as PostgreSQL, and
/// for the same reason. MariaDB has no TLS, which newer versions offer unasked: the proxy could not read what passes.
const OPTIONS: [&str; 5] = [
    "--connect-timeout=600",
    "--max-connect-errors=1000000",
    "--skip-name-resolve",
    "--max-connections=300",
    // MySQL does not know it.
    "--loose-skip-ssl",
];

/// Each commit is handed to the system, and does not wait for the disk.
const OFF_DISK: [&str; 2] = [NO_SYNC, "--sync-binlog=0"];

/// Nor does what fills an empty directory, which would wait for it many times.
const NO_SYNC: &str = "--innodb-flush-method=nosync";

#[async_trait]
impl Recipe for Mysql {
    fn family(&self) -> &'static str {
        self.scheme()
    }

    fn image(&self) -> &'static str {
        match self {
            Self::Mysql => "mysql:9",
            Self::Mariadb => "mariadb:10.11",
        }
    }

    fn port(&self) -> u16 {
        3306
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        let prefix = self.scheme().to_uppercase();
        image
            .with_env_var(format!("{prefix}_ROOT_PASSWORD"), ROOT)
            .with_env_var(format!("{prefix}_USER"), NAME)
            .with_env_var(format!("{prefix}_PASSWORD"), NAME)
            .with_env_var(format!("{prefix}_DATABASE"), NAME)
            .with_cmd(options())
    }

    fn program(&self) -> Result<PathBuf, String> {
        if *self == Self::Mariadb {
            return find("mariadbd");
        }
        let program = find("mysqld")?;
        // MariaDB takes MySQL's name too.
        let version = Command::new(&program).arg("--version").output().map_err(|error| error.to_string())?;
        if String::from_utf8_lossy(&version.stdout).contains("MariaDB") {
            return Err(format!("{} is MariaDB", program.display()));
        }
        Ok(program)
    }

    fn user(&self) -> Option<&'static str> {
        Some("mysql")
    }

    fn prepare(&self, setup: &Setup<'_>) -> io::Result<()> {
        let users = format!(
            "CREATE DATABASE IF NOT EXISTS {NAME};\n\
             CREATE USER IF NOT EXISTS {NAME}@'%' IDENTIFIED BY '{NAME}';\n\
             GRANT ALL ON {NAME}.* TO {NAME}@'%';\n\
             DROP USER IF EXISTS root@'127.0.0.1';\n\
             CREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '{ROOT}';\n\
             GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n"
        );
        fs::write(setup.home.join("users.sql"), users)?;
        let data = format!("--datadir={}", setup.home.join("data").display());
        match self {
            Self::Mysql => succeed((setup.command)(setup.program).args([
                "--no-defaults",
                "--initialize-insecure",
                &data,
                NO_SYNC,
            ])),
            Self::Mariadb => {
                let install = find("mariadb-install-db").map_err(io::Error::other)?;
                succeed((setup.command)(&install).args([
                    "--no-defaults",
                    &data,
                    "--skip-test-db",
                    "--auth-root-authentication-method=normal",
                    // Told to the server.
                    NO_SYNC,
                ]))
            }
        }
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        let mut command = (setup.command)(setup.program);
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", setup.home.join("data").display()))
            .arg(format!("--init-file={}", setup.home.join("users.sql").display()))
            .arg(format!("--port={port}"))
            // Relative to the data, because a socket's path must be short.
            .args(["--bind-address=127.0.0.1", "--socket=socket", "--pid-file=pid"])
            .args(OPTIONS)
            .args(OFF_DISK.iter().filter(|_| !setup.on_disk));
        if *self == Self::Mysql {
            command.arg("--mysqlx=OFF");
        }
        Ok(command)
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("{}://{NAME}:{NAME}@{address}/{NAME}", self.scheme())
    }

    fn admin_url(&self, address: SocketAddr) -> String {
        format!("{}://root:{ROOT}@{address}/", self.scheme())
    }

    fn may_proxy(&self, url: &Url) -> bool {
        !url.query_pairs().any(|(key, value)| {
            matches!(&*key, "ssl-mode" | "sslmode") && value.eq_ignore_ascii_case("verify_identity")
        })
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        connect(admin).await?.close().await.map_err(io::Error::other)
    }

    fn hurts(&self, way: &Way) -> &'static [Hurt] {
        match way {
            // Its user may be one whom `read_only` does not hold.
            Way::Environment { .. } => &[Hurt::TerminateBackends, Hurt::FillConnections],
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

    /// The last is what row locks have prepared. With MySQL clients encrypt what they send, so nothing is seen of it.
    fn ends(&self) -> &'static [&'static str] {
        match self {
            Self::Mysql => &[],
            Self::Mariadb => &["COMMIT", "ROLLBACK", "EXECUTE tenure_end"],
        }
    }

    async fn obey(&self, admin: &Admin<'_>, order: Order) -> io::Result<()> {
        let statement = match order {
            Order::TerminateBackends => return terminate(connect(admin).await?).await,
            Order::MakeReadOnly => "SET GLOBAL read_only = 1",
            Order::MakeWritable => "SET GLOBAL read_only = 0",
            _ => return Err(unknown(order)),
        };
        let mut connection = connect(admin).await?;
        sqlx::raw_sql(statement).execute(&mut connection).await.map_err(io::Error::other)?;
        connection.close().await.map_err(io::Error::other)
    }

    async fn hold(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<Held> {
        let mut session = connect(admin).await?;
        let held = match hurt {
            Hurt::FillDisk => fill_disk(&mut session).await,
            Hurt::LockRows => lock_rows(&mut session).await,
            Hurt::LockTables => {
                let sessions = lock_tables(admin, session).await?;
                return Ok(Held::Mysql { sessions });
            }
            _ => return Err(cannot_hold(hurt)),
        };
        held.map_err(io::Error::other)?;
        Ok(Held::Mysql { sessions: vec![session] })
    }

    async fn free(&self, held: Held) -> io::Result<()> {
        if let Held::Mysql { sessions } = held {
            for mut session in sessions {
                let give_back = "ROLLBACK; UNLOCK TABLES; DO RELEASE_ALL_LOCKS()";
                // When the server has ended it meanwhile, it has nothing any more.
                let _ = sqlx::raw_sql(give_back).execute(&mut session).await;
            }
        }
        Ok(())
    }

    /// The server speaks first, and a connection has its place as soon as it does.
    async fn fill(&self, admin: &Admin<'_>) -> io::Result<Held> {
        let greet = async |mut stream: TcpStream| {
            let mut greeting = [0; 5];
            stream.read_exact(&mut greeting).await?;
            // After the packet's head: an error, or the protocol's version.
            Ok((greeting[4] != 0xff).then_some(stream))
        };
        hold_all(admin.address, greet).await
    }
}

impl Mysql {
    fn scheme(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
        }
    }
}

/// The options of a server in a container.
pub(crate) fn options() -> impl Iterator<Item = &'static str> {
    OPTIONS.into_iter().chain(OFF_DISK)
}

/// Tenure's tables.
async fn tables(session: &mut MySqlConnection) -> Result<Vec<String>, sqlx::Error> {
    let tables = format!(
        "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
         WHERE table_schema = '{NAME}' AND table_name LIKE 'tenure%'"
    );
    sqlx::query_scalar(AssertSqlSafe(tables)).fetch_all(session).await
}

async fn execute(session: &mut MySqlConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(session).await.map(drop)
}

/// Begins a transaction that locks the rows which nobody has locked.
async fn lock_rows(session: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    let tables = tables(session).await?;
    execute(session, "BEGIN".into()).await?;
    for table in tables {
        execute(session, format!("SELECT 1 FROM {NAME}.`{table}` FOR UPDATE SKIP LOCKED")).await?;
    }
    Ok(())
}

/// Locks the tables, but those that others use for longer than it waits, each in a session of its own.
async fn lock_tables(admin: &Admin<'_>, mut first: MySqlConnection) -> io::Result<Vec<MySqlConnection>> {
    let mut sessions = Vec::new();
    for table in tables(&mut first).await.map_err(io::Error::other)? {
        let mut session = connect(admin).await?;
        let lock = format!("{PATIENCE}; LOCK TABLES {NAME}.`{table}` WRITE");
        if in_time(execute(&mut session, lock).await).map_err(io::Error::other)? {
            sessions.push(session);
        }
    }
    Ok(sessions)
}

/// Fills the disk: as long as the session has this lock, a trigger refuses each new row and each change, as the server
/// would without room. It has none of the tables' locks, so it ends whatever others do.
async fn fill_disk(session: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    execute(session, format!("{PATIENCE}; USE {NAME}")).await?;
    let there = "SELECT CAST(trigger_name AS CHAR) FROM information_schema.triggers";
    let there: Vec<String> = sqlx::query_scalar(there).fetch_all(&mut *session).await?;
    for table in tables(session).await? {
        for event in ["INSERT", "UPDATE"] {
            let name = format!("{table}_{event}");
            if there.contains(&name) {
                continue;
            }
            let trigger = format!(
                "CREATE TRIGGER `{name}` BEFORE {event} ON `{table}` FOR EACH ROW \
                 IF IS_USED_LOCK('conformance') IS NOT NULL THEN \
                 SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'; \
                 END IF"
            );
            in_time(execute(session, trigger).await)?;
        }
    }
    execute(session, "DO GET_LOCK('conformance', 10)".into()).await
}

/// How many seconds a session waits for a table.
const PATIENCE: &str = "SET SESSION lock_wait_timeout = 1";

/// Whether it was not waited for too long.
fn in_time(done: Result<(), sqlx::Error>) -> Result<bool, sqlx::Error> {
    const LOCK_WAIT_TIMEOUT: u16 = 1205;
    let Err(sqlx::Error::Database(error)) = &done else { return done.map(|()| true) };
    let number = error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number);
    if number == Some(LOCK_WAIT_TIMEOUT) { Ok(false) } else { done.map(|()| true) }
}

/// Ends every other client's connection, and returns when they have gone.
async fn terminate(mut connection: MySqlConnection) -> io::Result<()> {
    loop {
        let ids = others(&mut connection).await.map_err(io::Error::other)?;
        if ids.is_empty() {
            forget_tables(&mut connection).await.map_err(io::Error::other)?;
            return connection.close().await.map_err(io::Error::other);
        }
        for id in ids {
            match sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut connection).await {
                // It has just gone by itself.
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("HY000") => {}
                Err(error) => return Err(io::Error::other(error)),
                Ok(_) => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Has the server read its tables anew. A connection that ends while it reads a table's triggers leaves a broken one in the
/// server's cache, and each later change fails there ("Unknown trigger has an error in its body", MariaDB 10.11).
async fn forget_tables(session: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    // Unused tables are forgotten at once, so a table that stays in use for longer changes nothing.
    in_time(execute(session, format!("{PATIENCE}; FLUSH LOCAL TABLES")).await).map(drop)
}

/// The numbers of all clients' connections but this one. MySQL's `information_schema.processlist` has them too, but fails
/// while anybody's statement has a character beyond the 16-bit ones.
async fn others(connection: &mut MySqlConnection) -> Result<Vec<i64>, sqlx::Error> {
    let ours: i64 =
        sqlx::query_scalar("SELECT CAST(connection_id() AS SIGNED)").fetch_one(&mut *connection).await?;
    let mut ids = Vec::new();
    for process in sqlx::raw_sql("SHOW PROCESSLIST").fetch_all(connection).await? {
        // Signed in MariaDB, unsigned in MySQL.
        let (id, user): (i64, String) = (process.try_get_unchecked("Id")?, process.try_get("User")?);
        if id != ours && !["system user", "event_scheduler"].contains(&user.as_str()) {
            ids.push(id);
        }
    }
    Ok(ids)
}

pub(crate) async fn connect(admin: &Admin<'_>) -> io::Result<MySqlConnection> {
    let options: MySqlConnectOptions = admin.url.parse().map_err(io::Error::other)?;
    options.connect().await.map_err(io::Error::other)
}
