//! The databases without tenure: two statements of the shape that a lease row has, through a pool.

use sqlx::{Executor, MySqlPool, PgPool, postgres::PgAdvisoryLock};

/// A pool of connections.
#[derive(Clone)]
pub(crate) enum Pool {
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Pool {
    /// With a table. If `relaxed`, PostgreSQL's commits do not wait for the disk.
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

    /// Takes a row that is free, and gives it up.
    pub(crate) async fn cycle(&self, name: &str, claim: &str) {
        self.acquire(name, claim).await;
        self.release(name, claim).await;
    }

    /// Takes a lock of the server's own, and gives it up, as the driver does it.
    pub(crate) async fn own_cycle(&self, name: &str) {
        match self {
            Self::Postgres(pool) => {
                let connection = pool.acquire().await.expect("a connection");
                let guard = PgAdvisoryLock::new(name).acquire(connection).await.expect("it is free");
                drop(guard.release_now().await.expect("it was held"));
            }
            Self::MySql(pool) => {
                let mut connection = pool.acquire().await.expect("a connection");
                for statement in ["SELECT GET_LOCK(?, 10)", "SELECT RELEASE_LOCK(?)"] {
                    let asked = sqlx::query(statement).bind(name).fetch_all(&mut *connection).await;
                    assert_eq!(asked.expect("an answer").len(), 1);
                }
            }
        }
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
