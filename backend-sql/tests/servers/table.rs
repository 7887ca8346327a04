//! A table of its own on a server that all cases share.

use crate::{Kind, Store, claim, granted, lease_rows::Rows, store::Options, until};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row};
use std::{sync::Arc, time::Duration};
use tenure_conformance::proxy::Proxy;
use tenure_core::{Backend, ClaimId, Locks};
use tenure_sql::{MySqlOptions, PostgresOptions, Strategy};
use tenure_testbed::Server;

/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the connections and their statements are listed. MySQL's `information_schema` fails for all
/// users while any statement has a character beyond the 16-bit ones. MariaDB's does not, and MariaDB has no other list.
const PROCESSES: &str = "/*!80022 performance_schema.processlist */ /*M! information_schema.processlist */";

/// A table's name that no other case has, on a server, for one strategy.
pub(crate) struct Table {
    pub(crate) server: &'static Server,
    pub(crate) strategy: Strategy,
    pub(crate) name: String,
}

impl Table {
    pub(crate) fn new(server: &'static Server, strategy: Strategy) -> Self {
        let name = format!("locks_{}", ClaimId::new().as_uuid().simple());
        Self { server, strategy, name }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.server.kind(), Kind::Postgres | Kind::Pgbouncer)
    }

    pub(crate) fn options(&self) -> Options {
        self.options_at(&self.server.url())
    }

    pub(crate) fn options_at(&self, url: &str) -> Options {
        let (table, strategy) = (&self.name, self.strategy);
        let url = url.to_owned();
        let options = if self.is_postgres() {
            let options = PostgresOptions::new(&url).table(table).strategy(strategy);
            let pooled = self.server.kind() == Kind::Pgbouncer;
            Options::Postgres { url, options: if pooled { options.pooler(true) } else { options } }
        } else {
            let options = MySqlOptions::new(&url).table(table).strategy(strategy);
            Options::MySql { url, options }
        };
        // Advisory locks of all tables are one namespace.
        let options = if strategy == Strategy::Advisory { options.prefix(table) } else { options };
        // A busy machine was seen to take longer than the five seconds that are enough elsewhere.
        options.connect_timeout(PATIENCE)
    }

    pub(crate) async fn open(&self) -> Store {
        self.options().open().await.unwrap()
    }

    /// A proxy before the server, and options that lead through it.
    pub(crate) async fn through_proxy(&self) -> (Proxy, Options) {
        let server = self.server.members()[0].address();
        let proxy = Proxy::start(server).await.unwrap();
        let url = self.server.url().replace(&server.to_string(), &proxy.address().to_string());
        assert_ne!(url, self.server.url());
        let options = self.options_at(&url);
        (proxy, options)
    }

    pub(crate) async fn locks(&self) -> Locks {
        self.open().await.locks()
    }

    /// A backend, after the name was taken and released once: its rows are there.
    pub(crate) async fn open_with_row(&self, name: &str) -> Store {
        let store = self.open().await;
        let grant = granted(&store, &claim(name)).await;
        store.release(&grant).await.unwrap();
        store
    }

    /// The table's DDL, as people who create it by hand have it.
    pub(crate) fn ddl(&self) -> String {
        let schema = match (self.is_postgres(), self.strategy) {
            (true, Strategy::RowLock) => tenure_sql::postgres_row_schema,
            (true, _) => tenure_sql::postgres_schema,
            (false, Strategy::RowLock) => tenure_sql::mysql_row_schema,
            (false, _) => tenure_sql::mysql_schema,
        };
        schema(&self.name).unwrap()
    }

    /// The DDL of the table beside it, in which row locks have their latches.
    pub(crate) fn latch_ddl(&self) -> String {
        let latches = format!("{}_latches", self.name);
        let ddl = if self.is_postgres() {
            tenure_sql::postgres_schema(&latches)
        } else {
            tenure_sql::mysql_schema(&latches)
        };
        ddl.unwrap()
    }

    /// The URL of another database on the server.
    pub(crate) fn url_of(&self, database: &str) -> String {
        let url = self.server.url();
        format!("{}/{database}", url.rsplit_once('/').unwrap().0)
    }

    /// The URL past a pooler.
    fn raw_url(&self) -> String {
        match self.server.kind() {
            Kind::Pgbouncer => self.server.members()[1].url(),
            _ => self.server.url(),
        }
    }

    /// A connection beside the locks' own.
    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(&self.raw_url()).await
    }

    /// A statement in the words of the table's database: `{t}` is the table, `{q}` what stands around names, `{now}` the
    /// server's time as the lease rows have it, `{second}` and `{day}` such a time's differences.
    pub(crate) fn sql(&self, text: &str) -> String {
        let now = self.either(
            "floor(extract(epoch FROM now()) * 1000)::bigint",
            "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
        );
        let words = [
            ("{q}", self.either("\"", "`")),
            ("{text}", self.either("text", "CHAR CHARACTER SET utf8mb4")),
            ("{now}", now),
            ("{second}", "1000"),
            ("{day}", "86400000"),
        ];
        let text = text.replace("{t}", &self.name);
        words.into_iter().fold(text, |text, (word, meaning)| text.replace(word, meaning))
    }

    /// A text as an SQL expression that needs no escapes.
    pub(crate) fn quoted(&self, text: &[u8]) -> String {
        let digits: Vec<String> = text.iter().map(|byte| format!("{byte:02x}")).collect();
        self.either("convert_from('\\x{}', 'UTF8')", "CONVERT(X'{}' USING utf8mb4)")
            .replace("{}", &digits.concat())
    }

    /// The value for the table's database.
    pub(crate) fn either<T>(&self, postgres: T, mysql: T) -> T {
        if self.is_postgres() { postgres } else { mysql }
    }

    /// How many other connections carry out such a statement just now, or in PostgreSQL wait for a lock with it. Who asks this is
    /// not counted, nor who did so just before and is still listed.
    pub(crate) async fn asking(&self, like: &str) -> i64 {
        let postgres =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{like}%'";
        let mysql = format!(
            "SELECT COUNT(*) FROM {PROCESSES} WHERE info LIKE '%{{like}}%' AND info NOT LIKE '%processlist%'"
        );
        self.number(&self.either(postgres, &mysql).replace("{like}", like)).await
    }

    /// How many connections of this user of MySQL or MariaDB carry out such a statement just now.
    pub(crate) async fn sessions(&self, user: &str, like: &str) -> i64 {
        let all = format!("SELECT COUNT(*) FROM {PROCESSES} WHERE user = '{user}' AND info LIKE '{like}'");
        self.admin().await.number(&all).await
    }

    /// Whether that connection of MySQL or MariaDB sleeps, because it was told to, and will do so for some seconds more.
    /// A bell sleeps for ten at a time, and a ring between two sleeps is lost.
    pub(crate) async fn is_asleep(&self, connection: i64) -> bool {
        let asleep = format!("WHERE id = {connection} AND info LIKE 'DO SLEEP(%' AND time < 5");
        self.number(&format!("SELECT COUNT(*) FROM {PROCESSES} {asleep}")).await == 1
    }

    /// Waits until [`asking`](Self::asking) counts one connection.
    pub(crate) async fn until_asked(&self, like: &str) {
        until(async || self.asking(like).await == 1).await;
    }

    /// Waits until a row lock's claim waits for its row.
    pub(crate) async fn until_waits(&self, claim: ClaimId) {
        if !self.is_postgres() {
            let statement = match self.strategy {
                Strategy::Advisory => "SET @tenure_locked = GET_LOCK(".to_owned(),
                _ => self.sql("FROM `{t}`%FOR UPDATE"),
            };
            return self.until_asked(&statement).await;
        }
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'tenure {c}'";
        let waits = waits.replace("{c}", &self.shown(claim));
        until(async || self.number(&waits).await == 1).await;
    }

    /// The number of the connection with which a row lock's claim holds or waits; 0 when there is none.
    pub(crate) async fn connection_of(&self, claim: ClaimId) -> i64 {
        let postgres = "SELECT coalesce(max(pid), 0)::bigint FROM pg_stat_activity WHERE application_name LIKE 'tenure {c}%'";
        let mysql = "SELECT CAST(COALESCE(IS_USED_LOCK('tenure/{c}'), 0) AS SIGNED)";
        self.number(&self.either(postgres, mysql).replace("{c}", &self.shown(claim))).await
    }

    /// The claim as its connection shows it.
    pub(crate) fn shown(&self, claim: ClaimId) -> String {
        match self.strategy {
            Strategy::Advisory if self.is_postgres() => claim.as_uuid().simple().to_string(),
            _ => claim.to_string(),
        }
    }

    /// Waits until the server has locked the row for a row lock's claim, and its connection does nothing else.
    pub(crate) async fn until_locked(&self, claim: ClaimId) {
        let postgres = match self.strategy {
            Strategy::Advisory => {
                "SELECT count(*) FROM pg_locks WHERE pid = {number} AND locktype = 'advisory' AND granted"
            }
            _ => {
                "SELECT count(*) FROM pg_stat_activity WHERE pid = {number} AND state = 'idle in transaction'"
            }
        };
        let mysql = format!("SELECT COUNT(*) FROM {PROCESSES} WHERE id = {{number}} AND command = 'Sleep'");
        let locked = self.either(postgres, &mysql);
        until(async || {
            let number = self.connection_of(claim).await;
            number > 0 && self.number(&locked.replace("{number}", &number.to_string())).await == 1
        })
        .await;
    }

    /// Has the server end that connection, and waits until it has gone. By then, who waits may have another one.
    pub(crate) async fn end_connection_of(&self, claim: ClaimId) {
        let connection = self.connection_of(claim).await;
        assert!(connection > 0, "the claim has no connection");
        self.raw().await.end(connection).await;
        until(async || self.connection_of(claim).await != connection).await;
    }

    /// Waits until no transaction has locked a row.
    pub(crate) async fn until_nothing_is_locked(&self) {
        let lock = self.sql("SELECT 1 FROM {t} FOR UPDATE NOWAIT");
        until(async || {
            let mut raw = self.raw().await;
            raw.execute("BEGIN").await;
            let free = raw.try_execute(&lock).await.is_ok();
            raw.execute("ROLLBACK").await;
            free
        })
        .await;
    }

    /// A user of the server with no rights in the database but to connect, and the URL with which it does.
    pub(crate) async fn user(&self) -> (String, String) {
        self.user_named("u").await
    }

    /// One whose name begins like that.
    async fn user_named(&self, first: &str) -> (String, String) {
        let user = format!("{first}{}", &self.name[self.name.len() - 12..]);
        let url = self.server.url();
        let (scheme, place) = (url.split_once("://").unwrap().0, url.split_once('@').unwrap().1);
        let mut admin = self.admin().await;
        if self.is_postgres() {
            admin.execute(&format!("CREATE ROLE {user} LOGIN PASSWORD 'hunter2'")).await;
        } else {
            admin.execute(&format!("CREATE USER {user} IDENTIFIED BY 'hunter2'")).await;
            admin.execute(&format!("GRANT SELECT ON {}.* TO {user}", self.database())).await;
        }
        (user.clone(), format!("{scheme}://{user}:hunter2@{place}"))
    }

    /// A session of another user's, who may do nothing here but connect and look.
    pub(crate) async fn stranger(&self) -> Raw {
        Raw::connect(&self.user_named("stranger").await.1).await
    }

    /// Gives a user of the server rights on the table, which in MySQL need not be there yet.
    pub(crate) async fn grant(&self, rights: &str, user: &str) {
        let table = self.either(self.name.clone(), format!("{}.*", self.database()));
        self.admin().await.execute(&format!("GRANT {rights} ON {table} TO {user}")).await;
        if self.is_postgres() && self.strategy == Strategy::Advisory {
            let tokens = format!("GRANT USAGE, UPDATE ON SEQUENCE {table}_tokens TO {user}");
            self.admin().await.execute(&tokens).await;
        }
    }

    pub(crate) async fn admin(&self) -> Raw {
        Raw::connect(&self.server.admin_url()).await
    }

    /// The administrator, in the database of the locks. Where MySQL keeps a binary log, only it may make triggers.
    pub(crate) async fn admin_here(&self) -> Raw {
        let mut admin = self.admin().await;
        if !self.is_postgres() {
            admin.execute(&format!("USE {}", self.database())).await;
        }
        admin
    }

    fn database(&self) -> String {
        self.server.url().rsplit_once('/').unwrap().1.to_owned()
    }
}

impl Rows for Table {
    async fn client(&self, fair: bool) -> Arc<dyn Backend> {
        Arc::new(self.options().fair(fair).open().await.unwrap())
    }

    async fn swept(&self) -> u64 {
        self.open().await.sweep().await.unwrap()
    }

    async fn execute(&self, statement: &str) {
        self.raw().await.execute(&self.sql(statement)).await;
    }

    async fn number(&self, query: &str) -> i64 {
        self.raw().await.number(&self.sql(query)).await
    }

    async fn texts(&self, query: &str) -> Vec<String> {
        self.raw().await.texts(&self.sql(query)).await
    }

    async fn record(&self, name: &str) -> Option<Value> {
        let record =
            format!("SELECT record FROM {{t}} WHERE prefix = '' AND name = '{name}' AND record IS NOT NULL");
        let records = self.raw().await.texts(&self.sql(&record)).await;
        records.first().map(|record| serde_json::from_str(record).unwrap())
    }

    async fn set_record(&self, name: &str, record: &Value) {
        let record = self.quoted(record.to_string().as_bytes());
        let set = format!("record = {record} WHERE prefix = '' AND name = '{name}'");
        self.execute(&format!("UPDATE {{t}} SET version = version + 1, {set}")).await;
    }

    fn no_text(&self) -> Option<&'static str> {
        self.either(None, Some("claim = X'FF'"))
    }
}

/// A connection beside the locks' own, of one database or the other.
pub(crate) enum Raw {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Raw {
    pub(crate) async fn connect(url: &str) -> Self {
        if url.starts_with("postgres") {
            Self::Postgres(PgConnection::connect(url).await.unwrap())
        } else {
            Self::MySql(MySqlConnection::connect(url).await.unwrap())
        }
    }

    pub(crate) async fn try_execute(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Postgres(raw) => raw.execute(sql).await.map(drop),
            Self::MySql(raw) => raw.execute(sql).await.map(drop),
        }
    }

    pub(crate) async fn execute(&mut self, sql: &str) {
        self.try_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        let text = AssertSqlSafe(sql.to_owned());
        let number = match self {
            Self::Postgres(raw) => sqlx::query_scalar(text).fetch_one(raw).await,
            Self::MySql(raw) => sqlx::query_scalar(text).fetch_one(raw).await,
        };
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The first column of each row. Prepares nothing.
    pub(crate) async fn texts(&mut self, sql: &str) -> Vec<String> {
        let text = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let texts: Result<Vec<String>, sqlx::Error> = match self {
            Self::Postgres(raw) => {
                text.fetch_all(raw).await.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            }
            Self::MySql(raw) => {
                text.fetch_all(raw).await.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            }
        };
        texts.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Whether this user of MySQL or MariaDB waits for a user-level lock just now.
    pub(crate) async fn waits_for_user_lock(&mut self, user: &str) -> bool {
        let waits = format!("SELECT COUNT(*) FROM {PROCESSES} WHERE user = '{user}' AND state = 'User lock'");
        self.number(&waits).await > 0
    }

    /// Has the server end another connection.
    pub(crate) async fn end(&mut self, connection: i64) {
        let end = match self {
            Self::Postgres(_) => format!("SELECT pg_terminate_backend({connection}, 10000)"),
            Self::MySql(_) => format!("KILL {connection}"),
        };
        self.execute(&end).await;
    }
}
