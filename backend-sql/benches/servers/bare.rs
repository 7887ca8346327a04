//! The databases without tenure: a lock of the server's own, and two statements of the shape that a lease row has.

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, MySqlPool, PgConnection, PgPool, Row};
use tenure_core::ClaimId;

/// One connection.
pub(crate) enum Bare {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Bare {
    pub(crate) async fn connect(url: &str) -> Self {
        if url.starts_with("postgres") {
            Self::Postgres(PgConnection::connect(url).await.expect("a server"))
        } else {
            Self::MySql(MySqlConnection::connect(url).await.expect("a server"))
        }
    }

    pub(crate) async fn execute(&mut self, sql: &'static str) {
        match self {
            Self::Postgres(bare) => drop(bare.execute(sql).await.expect(sql)),
            Self::MySql(bare) => drop(bare.execute(sql).await.expect(sql)),
        }
    }

    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Postgres(bare) => sqlx::query_scalar(sql).fetch_one(bare).await.expect("a number"),
            Self::MySql(bare) => sqlx::query_scalar(sql).fetch_one(bare).await.expect("a number"),
        }
    }

    /// How many statements clients have sent.
    pub(crate) async fn questions(&mut self) -> i64 {
        let Self::MySql(bare) = self else { panic!("not counted so") };
        let row = bare.fetch_one("SHOW GLOBAL STATUS LIKE 'Questions'").await.expect("a row");
        row.get::<String, _>(1).parse().expect("a number")
    }

    /// Waits in the server for a lock of its own.
    pub(crate) async fn lock(&mut self) {
        match self {
            Self::Postgres(bare) => {
                sqlx::query("SELECT pg_advisory_lock($1)").bind(1_i64).fetch_all(bare).await.map(drop)
            }
            Self::MySql(bare) => {
                sqlx::query("SELECT GET_LOCK(?, 60)").bind("bare").fetch_all(bare).await.map(drop)
            }
        }
        .expect("it comes free");
    }

    pub(crate) async fn unlock(&mut self) {
        match self {
            Self::Postgres(bare) => {
                sqlx::query("SELECT pg_advisory_unlock($1)").bind(1_i64).fetch_all(bare).await.map(drop)
            }
            Self::MySql(bare) => {
                sqlx::query("SELECT RELEASE_LOCK(?)").bind("bare").fetch_all(bare).await.map(drop)
            }
        }
        .expect("it was held");
    }
}

/// A pool of connections.
#[derive(Clone)]
pub(crate) enum Pool {
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Pool {
    /// With a table; `settings` begin each session.
    pub(crate) async fn connect(url: &str, relaxed: bool, connections: u32) -> Self {
        if url.starts_with("postgres") {
            let connect: sqlx::postgres::PgConnectOptions = url.parse().expect("a good URL");
            let commits = if relaxed { "off" } else { "on" };
            let connect = connect.options([("synchronous_commit", commits)]);
            let pool = sqlx::postgres::PgPoolOptions::new().max_connections(connections);
            let pool = pool.test_before_acquire(false);
            let pool = pool.connect_with(connect).await.expect("a server");
            let table = "CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, token bigint NOT NULL, claim text, \
                         expires_at timestamptz NOT NULL) WITH (fillfactor = 50)";
            pool.execute(table).await.expect("a table");
            Self::Postgres(pool)
        } else {
            let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(connections);
            let pool = pool.test_before_acquire(false);
            let pool = pool.connect(url).await.expect("a server");
            let table = "CREATE TABLE IF NOT EXISTS bare (name VARBINARY(200) PRIMARY KEY, token BIGINT NOT NULL, \
                         claim VARBINARY(36), expires_at DATETIME(6) NOT NULL) ENGINE = InnoDB";
            pool.execute(table).await.expect("a table");
            Self::MySql(pool)
        }
    }

    pub(crate) async fn cycle(&self, name: &str) {
        let claim = ClaimId::new().to_string();
        self.acquire(name, &claim).await;
        self.release(name, &claim).await;
    }

    pub(crate) async fn acquire(&self, name: &str, claim: &str) {
        match self {
            Self::Postgres(pool) => {
                let acquire = "
                    INSERT INTO bare AS held (name, token, claim, expires_at)
                    VALUES ($1, (extract(epoch FROM now()) * 1000000)::bigint, $2, now() + $3::bigint * interval '1 millisecond')
                    ON CONFLICT (name) DO UPDATE SET token = greatest(held.token + 1, excluded.token),
                      claim = excluded.claim, expires_at = excluded.expires_at
                    WHERE held.claim IS NULL OR held.expires_at < now()
                    RETURNING token";
                let acquire = sqlx::query(acquire).bind(name).bind(claim).bind(30_000_i64);
                assert_eq!(acquire.fetch_all(pool).await.expect("an answer").len(), 1);
            }
            Self::MySql(pool) => {
                let acquire = "
                    INSERT INTO bare (name, token, claim, expires_at)
                    VALUES (?, LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), ?,
                      UTC_TIMESTAMP(6) + INTERVAL ? * 1000 MICROSECOND)
                    ON DUPLICATE KEY UPDATE
                      token = IF(claim IS NULL OR expires_at < UTC_TIMESTAMP(6),
                        LAST_INSERT_ID(GREATEST(token + 1, VALUES(token))), token + LAST_INSERT_ID(0)),
                      claim = IF(claim IS NULL OR expires_at < UTC_TIMESTAMP(6), VALUES(claim), claim),
                      expires_at = IF(claim = VALUES(claim), VALUES(expires_at), expires_at)";
                let acquire = sqlx::query(acquire).bind(name).bind(claim).bind(30_000_i64);
                assert_ne!(acquire.execute(pool).await.expect("an answer").last_insert_id(), 0);
            }
        }
    }

    async fn release(&self, name: &str, claim: &str) {
        match self {
            Self::Postgres(pool) => {
                let release = "UPDATE bare SET claim = NULL, expires_at = now() \
                               WHERE name = $1 AND claim = $2 AND expires_at >= now() RETURNING 1";
                let released = sqlx::query(release).bind(name).bind(claim).fetch_all(pool).await;
                assert_eq!(released.expect("an answer").len(), 1);
            }
            Self::MySql(pool) => {
                let release = "UPDATE bare SET claim = NULL, expires_at = UTC_TIMESTAMP(6) \
                               WHERE name = ? AND claim = ? AND expires_at >= UTC_TIMESTAMP(6)";
                let released = sqlx::query(release).bind(name).bind(claim).execute(pool).await;
                assert_eq!(released.expect("an answer").rows_affected(), 1);
            }
        }
    }
}
