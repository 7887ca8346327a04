//! A server on a core of its own, and what is counted there.

use crate::{
    bare::Bare,
    scale::{self, Leases},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tenure_core::{Backend, Locks};
use tenure_sql::{Durability, MySqlBackend, MySqlOptions, PostgresBackend, PostgresOptions, Strategy};
use tenure_testbed::{Kind, Server, Use};

/// A server of this machine's own programs.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    server: Server,
}

/// How a lock is had.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    LeaseRow,
    /// A lease row where no commit waits for the disk, which only PostgreSQL has.
    LeaseRowRelaxed,
    RowLock,
    RowLockRelaxed,
    Advisory,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LeaseRow => "lease row",
            Self::LeaseRowRelaxed => "lease row, relaxed",
            Self::RowLock => "row lock",
            Self::RowLockRelaxed => "row lock, relaxed",
            Self::Advisory => "advisory lock",
        }
    }

    /// Those that a database has.
    pub(crate) fn all(kind: Kind) -> Vec<Self> {
        match kind {
            Kind::Postgres => {
                vec![
                    Self::LeaseRow,
                    Self::LeaseRowRelaxed,
                    Self::RowLock,
                    Self::RowLockRelaxed,
                    Self::Advisory,
                ]
            }
            _ => vec![Self::LeaseRow, Self::RowLock, Self::Advisory],
        }
    }
}

impl Place {
    pub(crate) async fn start(kind: Kind) -> Result<Self, String> {
        let server = Server::start(kind, Use::LocalOnDisk).await.map_err(|error| error.to_string())?;
        let place = Self { kind, server };
        if kind == Kind::Postgres {
            place
                .bare()
                .await
                .execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
                .await;
            place.server.saboteur().restart().await.map_err(|error| error.to_string())?;
            place.bare().await.execute("CREATE EXTENSION pg_stat_statements").await;
        }
        Ok(place)
    }

    pub(crate) fn url(&self) -> String {
        self.server.direct_url()
    }

    /// A connection past tenure.
    pub(crate) async fn bare(&self) -> Bare {
        Bare::connect(&self.url()).await
    }

    /// A new client's locks.
    pub(crate) async fn locks(&self, way: Way) -> Locks {
        locks(&self.url(), way).await
    }

    /// A new client's lease rows, over so many connections.
    pub(crate) async fn lease_rows_over(&self, connections: usize) -> Locks {
        let url = self.url();
        let backend: Arc<dyn Backend> = if url.starts_with("postgres") {
            let options = PostgresOptions::new(url).connections(connections);
            Arc::new(PostgresBackend::connect(options).await.expect("a server"))
        } else {
            let options = MySqlOptions::new(url).connections(connections);
            Arc::new(MySqlBackend::connect(options).await.expect("a server"))
        };
        Locks::new(backend)
    }

    /// How many statements on tenure's tables the server has carried out for clients.
    pub(crate) async fn statements(&self) -> i64 {
        let mut bare = self.bare().await;
        match self.kind {
            Kind::Postgres => {
                // The server takes the names of an advisory lock's sequence for constants, and leaves them out.
                let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements \
                             WHERE query LIKE '%\"tenure_%' OR query LIKE 'PREPARE tenure_%'";
                bare.number(calls).await
            }
            // Connecting and asking are statements too, always as many.
            _ => bare.questions().await,
        }
    }

    /// How many statements one count adds to the next.
    pub(crate) async fn counting(&self) -> i64 {
        let before = self.statements().await;
        self.statements().await - before
    }
}

/// As PostgreSQL tells it.
impl scale::Server for Place {
    async fn requests(&self) -> u32 {
        u32::try_from(self.statements().await).expect("not so many")
    }

    async fn least_left(&self, leases: Leases, time: Duration) -> Duration {
        let (mut bare, mut least) = (self.bare().await, Duration::MAX);
        // To read the whole table would keep the server from its work.
        bare.execute("SET enable_seqscan = off").await;
        let look = format!(
            "SELECT min(expires_at) - floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint \
             FROM tenure_locks WHERE prefix = '' AND name = ANY (ARRAY(\
             SELECT '{}' || number FROM generate_series(0, {}, {}) AS number))",
            leases.prefix(),
            leases.count - 1,
            leases.step()
        );
        let begin = Instant::now();
        while begin.elapsed() < time {
            // Less than nothing is left of one that has expired.
            let left = u64::try_from(bare.number(&look).await).unwrap_or_default();
            least = least.min(Duration::from_millis(left));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        least
    }
}

pub(crate) async fn locks(url: &str, way: Way) -> Locks {
    let (strategy, durability) = match way {
        Way::LeaseRow => (Strategy::LeaseRow, Durability::Full),
        Way::LeaseRowRelaxed => (Strategy::LeaseRow, Durability::Relaxed),
        Way::RowLock => (Strategy::RowLock, Durability::Full),
        Way::RowLockRelaxed => (Strategy::RowLock, Durability::Relaxed),
        Way::Advisory => (Strategy::Advisory, Durability::Full),
    };
    let backend: Arc<dyn Backend> = if url.starts_with("postgres") {
        let options = PostgresOptions::new(url).strategy(strategy).durability(durability);
        let options = if strategy == Strategy::LeaseRow { options } else { options.connections(100) };
        Arc::new(PostgresBackend::connect(options).await.expect("a server"))
    } else {
        let options = MySqlOptions::new(url).strategy(strategy);
        let options = if strategy == Strategy::LeaseRow { options } else { options.connections(100) };
        Arc::new(MySqlBackend::connect(options).await.expect("a server"))
    };
    Locks::new(backend)
}
