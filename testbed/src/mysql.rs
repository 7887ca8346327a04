//! MySQL and MariaDB.

use crate::admin::{Admin, unknown};
use crate::galera_node::{GaleraNode, LIBRARY};
use crate::postgres::succeed;
use crate::program::find;
use crate::recipe::{Held, Recipe, Setup, hold_all};
use crate::way::Way;
use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySqlConnection, Row};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tenure_conformance::saboteur::{Hurt, Injection};
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use url::Url;

/// One server of either family, alone or in a cluster.
#[derive(Debug)]
#[expect(clippy::enum_variant_names, reason = "MySQL is the family's name, too")]
pub(crate) enum Mysql {
    Mysql,
    Mariadb,
    /// A MariaDB server that others know.
    Galera(GaleraNode),
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
            Self::Mariadb | Self::Galera(_) => "mariadb:10.11",
        }
    }

    fn port(&self) -> u16 {
        3306
    }

    fn fixed_port(&self) -> Option<u16> {
        self.place().map(|node| node.clients)
    }

    /// The first node of a Galera cluster would begin another one.
    fn may_restart(&self) -> bool {
        self.place().is_none()
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        let prefix = self.scheme().to_uppercase();
        let mut options: Vec<String> = OPTIONS.into_iter().chain(OFF_DISK).map(str::to_owned).collect();
        if let Some(node) = self.place() {
            options.extend([format!("--port={}", node.clients), "--bind-address=127.0.0.1".to_owned()]);
            options.extend(node.options());
        }
        image
            .with_env_var(format!("{prefix}_ROOT_PASSWORD"), ROOT)
            .with_env_var(format!("{prefix}_USER"), NAME)
            .with_env_var(format!("{prefix}_PASSWORD"), NAME)
            .with_env_var(format!("{prefix}_DATABASE"), NAME)
            .with_cmd(options)
    }

    fn program(&self) -> Result<PathBuf, String> {
        if self.place().is_some() {
            find("rsync")?;
            if !Path::new(LIBRARY).is_file() {
                return Err(format!("no library {LIBRARY} on this machine"));
            }
        }
        if !self.is_mysql() {
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
            Self::Mariadb | Self::Galera(_) => {
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
            .args(OFF_DISK.iter().filter(|_| !setup.on_disk))
            .args(self.place().map(GaleraNode::options).unwrap_or_default());
        if self.is_mysql() {
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
        let connected = async { connect(admin).await?.close().await };
        connected.await.map_err(io::Error::other)
    }

    fn hurts(&self, way: &Way) -> &'static [Hurt] {
        match way {
            _ if self.place().is_some() => &[],
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
            Self::Mysql | Self::Galera(_) => &[],
            Self::Mariadb => &["COMMIT", "ROLLBACK", "EXECUTE tenure_end"],
        }
    }

    async fn inject(&self, admin: &Admin<'_>, injection: Injection) -> io::Result<()> {
        let done = match injection.hurt {
            Hurt::TerminateBackends => terminate(admin).await,
            Hurt::ReadOnly => set_read_only(admin, true).await,
            hurt => return Err(unknown(hurt)),
        };
        done.map_err(io::Error::other)
    }

    async fn undo(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<()> {
        match hurt {
            Hurt::ReadOnly => set_read_only(admin, false).await.map_err(io::Error::other),
            hurt => Err(unknown(hurt)),
        }
    }

    async fn hold(&self, admin: &Admin<'_>, hurt: Hurt) -> io::Result<Held> {
        let sessions = match hurt {
            Hurt::FillConnections => return fill(admin).await,
            Hurt::FillDisk => fill_disk(admin).await,
            Hurt::LockRows => lock_rows(admin).await,
            Hurt::LockTables => lock_tables(admin).await,
            _ => return Err(unknown(hurt)),
        };
        Ok(Held::Mysql { sessions: sessions.map_err(io::Error::other)? })
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
}

impl Mysql {
    fn is_mysql(&self) -> bool {
        matches!(self, Self::Mysql)
    }

    fn scheme(&self) -> &'static str {
        if self.is_mysql() { "mysql" } else { "mariadb" }
    }

    /// Its place in a cluster.
    fn place(&self) -> Option<&GaleraNode> {
        match self {
            Self::Galera(node) => Some(node),
            _ => None,
        }
    }
}

/// The server speaks first, and a connection has its place as soon as it does.
async fn fill(admin: &Admin<'_>) -> io::Result<Held> {
    let greet = async |mut stream: TcpStream| {
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).await?;
        // After the packet's head: an error, or the protocol's version.
        Ok((greeting[4] != 0xff).then_some(stream))
    };
    hold_all(admin.address, greet).await
}

async fn set_read_only(admin: &Admin<'_>, value: bool) -> Result<(), sqlx::Error> {
    let mut connection = connect(admin).await?;
    execute(&mut connection, format!("SET GLOBAL read_only = {value}")).await?;
    connection.close().await
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
async fn lock_rows(admin: &Admin<'_>) -> Result<Vec<MySqlConnection>, sqlx::Error> {
    let mut session = connect(admin).await?;
    let tables = tables(&mut session).await?;
    execute(&mut session, "BEGIN".into()).await?;
    for table in tables {
        execute(&mut session, format!("SELECT 1 FROM {NAME}.`{table}` FOR UPDATE SKIP LOCKED")).await?;
    }
    Ok(vec![session])
}

/// Locks the tables, but those that others use for longer than it waits, each in a session of its own.
async fn lock_tables(admin: &Admin<'_>) -> Result<Vec<MySqlConnection>, sqlx::Error> {
    let mut sessions = Vec::new();
    for table in tables(&mut connect(admin).await?).await? {
        let mut session = connect(admin).await?;
        let lock = format!("{PATIENCE}; LOCK TABLES {NAME}.`{table}` WRITE");
        if in_time(execute(&mut session, lock).await)? {
            sessions.push(session);
        }
    }
    Ok(sessions)
}

/// Fills the disk: as long as the session has this lock, a trigger refuses each new row and each change, as the server
/// would without room. It has none of the tables' locks, so it ends whatever others do.
async fn fill_disk(admin: &Admin<'_>) -> Result<Vec<MySqlConnection>, sqlx::Error> {
    let mut session = connect(admin).await?;
    execute(&mut session, format!("{PATIENCE}; USE {NAME}")).await?;
    let there = "SELECT CAST(trigger_name AS CHAR) FROM information_schema.triggers";
    let there: Vec<String> = sqlx::query_scalar(there).fetch_all(&mut session).await?;
    for table in tables(&mut session).await? {
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
            in_time(execute(&mut session, trigger).await)?;
        }
    }
    execute(&mut session, "DO GET_LOCK('conformance', 10)".into()).await?;
    Ok(vec![session])
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
async fn terminate(admin: &Admin<'_>) -> Result<(), sqlx::Error> {
    let mut connection = connect(admin).await?;
    loop {
        let ids = others(&mut connection).await?;
        if ids.is_empty() {
            forget_tables(&mut connection).await?;
            return connection.close().await;
        }
        for id in ids {
            match execute(&mut connection, format!("KILL {id}")).await {
                // It has just gone by itself.
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("HY000") => {}
                killed => killed?,
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

pub(crate) async fn connect(admin: &Admin<'_>) -> Result<MySqlConnection, sqlx::Error> {
    admin.url.parse::<MySqlConnectOptions>()?.connect().await
}
