//! The kinds of servers.

use std::fmt;
use tenure_conformance::saboteur::Hurt;

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
    /// Two MariaDB servers in a Galera cluster: each accepts writes, and has the other's. The URL is that of the first.
    Galera,
    /// One ZooKeeper server.
    Zookeeper,
    /// A ZooKeeper ensemble of so many, whose members can be cut off from each other.
    ZookeeperEnsemble(u8),
    /// One etcd server that keeps its data over a restart.
    Etcd,
    /// An etcd cluster of so many, whose members can be cut off from each other.
    EtcdCluster(u8),
    /// One NATS server with JetStream, which keeps its data over a restart.
    Nats,
    /// A NATS cluster of so many, whose members can be cut off from each other. A member's name is its number: JetStream
    /// calls the leader of a stream `0` where [`members`](crate::Server::members) has it first.
    NatsCluster(u8),
    /// One moto, which emulates S3 and has one bucket. This machine's own program; its objects outlast a restart.
    S3,
}

impl Kind {
    /// Every kind, those of several servers with three, except [`Galera`](Self::Galera): once all its members have been
    /// killed, an administrator has to choose the one that begins anew.
    pub const ALL: [Self; 15] = [
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
        Self::Etcd,
        Self::EtcdCluster(3),
        Self::Nats,
        Self::NatsCluster(3),
        Self::S3,
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
            Self::Galera => "galera",
            Self::Zookeeper => "zookeeper",
            Self::ZookeeperEnsemble(_) => "zookeeper_ensemble",
            Self::Etcd => "etcd",
            Self::EtcdCluster(_) => "etcd_cluster",
            Self::Nats => "nats",
            Self::NatsCluster(_) => "nats_cluster",
            Self::S3 => "s3",
        }
    }

    /// Whether clients see one server, so that one proxy can stand before it.
    pub(crate) fn is_single(self) -> bool {
        matches!(
            self,
            Self::Redis
                | Self::Postgres
                | Self::Pgbouncer
                | Self::Mariadb
                | Self::Mysql
                | Self::Zookeeper
                | Self::Etcd
                | Self::Nats
                | Self::S3
        )
    }

    /// Whether a store on such servers forgets its grants when they suffer this fault: the answer for
    /// [`Subject::forgets`](tenure_conformance::Subject::forgets). Nothing else is excused. `on_connections` says that its
    /// grants end with their connections: row locks and advisory locks.
    #[must_use]
    pub fn forgets(self, hurt: Hurt, on_connections: bool) -> bool {
        if on_connections {
            // The server frees a lock at once when its connection ends, and the holder notices only with its next heartbeat. A
            // fault that keeps the holder's note from being written is no excuse: the holder is told before the lock is free.
            return Hurt::ENDS_CONNECTIONS.contains(&hurt);
        }
        match self {
            // Sentinels that lose their connections, or get none, take the master for one that does not answer.
            Self::RedisSentinel if matches!(hurt, Hurt::TerminateBackends | Hurt::FillConnections) => true,
            // A replica that replaces an unresponsive master may lack its latest writes.
            Self::RedisSentinel | Self::RedisCluster => matches!(
                hurt,
                Hurt::Freeze
                    | Hurt::Kill
                    | Hurt::Wipe
                    | Hurt::Refuse
                    | Hurt::DelayRequests
                    | Hurt::DelayReplies
                    | Hurt::Drip
                    | Hurt::HalfOpen
                    | Hurt::DropRequests
                    | Hurt::DropReplies
            ),
            _ => matches!(hurt, Hurt::Wipe | Hurt::ExpireSessions | Hurt::ClockAhead),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn excused(kind: Kind, on_connections: bool) -> Vec<Hurt> {
        Hurt::ALL.into_iter().filter(|hurt| kind.forgets(*hurt, on_connections)).collect()
    }

    #[test]
    fn only_what_wipes_or_expires_is_excused_without_a_failover() {
        let fails_over = |kind: &Kind| matches!(kind, Kind::RedisSentinel | Kind::RedisCluster);
        for kind in Kind::ALL.into_iter().filter(|kind| !fails_over(kind)) {
            let excuses = [Hurt::Wipe, Hurt::ExpireSessions, Hurt::ClockAhead];
            assert_eq!(excused(kind, false), excuses, "{kind:?}");
        }
        // What may make a replica take over.
        let [freeze, kill, wipe, refuse] = [Hurt::Freeze, Hurt::Kill, Hurt::Wipe, Hurt::Refuse];
        let slow = [Hurt::DelayRequests, Hurt::DelayReplies, Hurt::Drip, Hurt::HalfOpen];
        let lost = [Hurt::DropRequests, Hurt::DropReplies];
        let of_cluster = [&[freeze, kill, wipe, refuse][..], &slow, &lost].concat();
        assert_eq!(excused(Kind::RedisCluster, false), of_cluster);
        let of_sentinel = [&of_cluster[..], &[Hurt::TerminateBackends, Hurt::FillConnections]].concat();
        assert_eq!(excused(Kind::RedisSentinel, false), of_sentinel);
        // A row's lock ends with its connection.
        assert_eq!(excused(Kind::Postgres, true), Hurt::ENDS_CONNECTIONS);
    }
}
