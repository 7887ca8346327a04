//! The kinds of servers.

use std::fmt;

/// A kind of server, or of servers that are one to their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One Redis server that keeps its data over a restart.
    Redis,
    /// A Redis master and two replicas, watched by three sentinels. The members are these six, in that order.
    RedisSentinel,
    /// A Redis Cluster: three masters, then a replica of each.
    RedisCluster,
    /// So many Redis servers that know nothing of each other.
    Redlock(u8),
    /// One PostgreSQL server, whose user owns it.
    Postgres,
    /// A PgBouncer in transaction mode, and the PostgreSQL server behind it. Hurting the whole hurts the PgBouncer.
    Pgbouncer,
    /// One MariaDB server, and a user of one database.
    Mariadb,
    /// One MySQL server, and a user of one database.
    Mysql,
    /// One ZooKeeper server.
    Zookeeper,
    /// A ZooKeeper ensemble of so many, whose members can be cut off from each other.
    ZookeeperEnsemble(u8),
}

impl Kind {
    /// Every kind, those of several servers with three.
    pub const ALL: [Self; 10] = [
        Self::Redis,
        Self::RedisSentinel,
        Self::RedisCluster,
        Self::Redlock(3),
        Self::Postgres,
        Self::Pgbouncer,
        Self::Mariadb,
        Self::Mysql,
        Self::Zookeeper,
        Self::ZookeeperEnsemble(3),
    ];

    /// Its name, as in `TENURE_TEST_<NAME>_URL`, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedisSentinel => "redis_sentinel",
            Self::RedisCluster => "redis_cluster",
            Self::Redlock(_) => "redlock",
            Self::Postgres => "postgres",
            Self::Pgbouncer => "pgbouncer",
            Self::Mariadb => "mariadb",
            Self::Mysql => "mysql",
            Self::Zookeeper => "zookeeper",
            Self::ZookeeperEnsemble(_) => "zookeeper_ensemble",
        }
    }

    /// Whether clients see one server, so that one proxy can stand before it.
    pub(crate) fn is_single(self) -> bool {
        matches!(
            self,
            Self::Redis | Self::Postgres | Self::Pgbouncer | Self::Mariadb | Self::Mysql | Self::Zookeeper
        )
    }

    /// The variable of the environment that says this of servers of this kind: `variable("URL")` names one that runs
    /// already, `variable("IMAGE")` the image to start one from.
    #[must_use]
    pub fn variable(self, what: &str) -> String {
        format!("TENURE_TEST_{}_{what}", self.name().to_uppercase())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
