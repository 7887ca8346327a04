//! The suite's subjects with servers.

#![allow(dead_code, unused_imports, unused_mut, reason = "features decide which servers there are")]

mod on_server;

use crate::{OF_A_QUEUE, groups};
use on_server::OnServer;
use tenure_conformance::Subjects;
use tenure_testbed::Kind;

/// With connections for as many locks as a case holds at once.
const ROW_LOCK: &str = "strategy=row-lock&connections=90&connect_timeout=12s";

const ADVISORY: &str = "strategy=advisory&connections=90&connect_timeout=12s";

/// By default a connection has 5 s to be made. Its dozen steps take longer where a hundred tasks of the suite want to go on.
const PATIENT: &str = "connect_timeout=12s";

/// The groups for which another way to the same servers matters: a Sentinel, a pooler, an ensemble. Other subjects show
/// the rest.
const OF_ANOTHER_WAY: &[&str] = &["store", "oracle", "exclusion", "waiting", "people", "faults", "fault_run"];

/// As above, without `waiting`: beside busy loops, a waiter in a cluster of NATS was seen to miss an announcement, in 4 of 6
/// runs, and found the change with its next question. With one server it hears of each.
const OF_NATS_IN_A_CLUSTER: &[&str] = &["store", "oracle", "exclusion", "people", "faults", "fault_run"];

/// The groups `OF_ANOTHER_WAY`, and those for which it matters that names are spread over servers.
const OF_A_CLUSTER: &[&str] = &[
    "store",
    "oracle",
    "exclusion",
    "names",
    "waiting",
    "lease",
    "people",
    "several",
    "latch",
    "closing",
    "faults",
    "fault_run",
];

/// Those in which the store's own requests matter. Moto takes some milliseconds for each, one after the other: beside other
/// work, a thousand leases are not renewed in time, and a lease of 2 s, which the oracle lets expire, may not be either. The
/// simulation that only dates its writes shows the oracle.
const OF_OBJECTS: &[&str] =
    &["store", "record_store", "exclusion", "waiting", "people", "latch", "fault_run"];

/// Whether clients of different nodes exclude each other, by a row's columns and by its record.
const ON_SEVERAL_NODES: &[&str] = &["exclusion", "exclusion_by_permit"];

/// The servers whose cases take longest, one after the other, come first: faults that end connections or processes.
pub(crate) fn of_this_build() -> Subjects {
    let mut subjects = Subjects::new();
    #[cfg(feature = "zookeeper")]
    {
        // It takes the place of the suite's leases. Shorter ones were seen to end beside other work.
        subjects = subjects.with(OnServer::new("zookeeper", Kind::Zookeeper, "session_timeout=8s"));
        let ensemble = OnServer::new("zookeeper-ensemble", Kind::ZookeeperEnsemble(3), "session_timeout=8s");
        subjects = subjects.with(ensemble.showing(groups(OF_ANOTHER_WAY)));
    }
    #[cfg(feature = "etcd")]
    {
        subjects = subjects.with(OnServer::new("etcd", Kind::Etcd, "session_timeout=8s"));
        let cluster = OnServer::new("etcd-cluster", Kind::EtcdCluster(3), "session_timeout=8s");
        subjects = subjects.with(cluster.showing(groups(OF_ANOTHER_WAY)));
    }
    #[cfg(feature = "nats")]
    {
        let patient = "connect_timeout=12s&response_timeout=3s";
        subjects = subjects.with(OnServer::new("nats", Kind::Nats, patient));
        let cluster = OnServer::new("nats-cluster", Kind::NatsCluster(3), patient);
        subjects = subjects.with(cluster.showing(groups(OF_NATS_IN_A_CLUSTER)));
    }
    #[cfg(feature = "s3")]
    {
        let patient = "poll=100ms&clock_skew=1ms&connect_timeout=12s";
        subjects = subjects.with(OnServer::new("s3", Kind::S3, patient).showing(groups(OF_OBJECTS)));
    }
    #[cfg(feature = "mysql")]
    {
        subjects = subjects.with(OnServer::new("mariadb", Kind::Mariadb, PATIENT));
        let fair = OnServer::new("mariadb-fair", Kind::Mariadb, "fair=true&connect_timeout=12s");
        subjects = subjects.with(fair.showing(groups(OF_A_QUEUE)));
        subjects = subjects.with(OnServer::new("mariadb-row-lock", Kind::Mariadb, ROW_LOCK));
        subjects = subjects.with(OnServer::new("mariadb-advisory", Kind::Mariadb, ADVISORY));
        subjects = subjects.with(OnServer::new("mysql", Kind::Mysql, PATIENT));
        subjects = subjects.with(OnServer::new("mysql-row-lock", Kind::Mysql, ROW_LOCK));
        let galera = OnServer::new("galera", Kind::Galera, PATIENT);
        subjects = subjects.with(galera.showing(groups(ON_SEVERAL_NODES)));
        subjects = subjects.with(OnServer::new("mariadb-clock", Kind::Mariadb, PATIENT).with_clock());
    }
    #[cfg(feature = "postgres")]
    {
        subjects = subjects.with(OnServer::new("postgres", Kind::Postgres, PATIENT));
        let fair = OnServer::new("postgres-fair", Kind::Postgres, "fair=true&connect_timeout=12s");
        subjects = subjects.with(fair.showing(groups(OF_A_QUEUE)));
        subjects = subjects.with(OnServer::new("postgres-row-lock", Kind::Postgres, ROW_LOCK));
        subjects = subjects.with(OnServer::new("postgres-advisory", Kind::Postgres, ADVISORY));
        let pooled = OnServer::new("pgbouncer", Kind::Pgbouncer, "pooler=true&connect_timeout=12s");
        subjects = subjects.with(pooled.showing(groups(OF_ANOTHER_WAY)));
        subjects = subjects.with(OnServer::new("postgres-clock", Kind::Postgres, PATIENT).with_clock());
        let row_lock = OnServer::new("postgres-row-lock-clock", Kind::Postgres, ROW_LOCK);
        subjects = subjects.with(row_lock.with_clock());
        let advisory = OnServer::new("postgres-advisory-clock", Kind::Postgres, ADVISORY);
        subjects = subjects.with(advisory.with_clock());
    }
    #[cfg(feature = "redis")]
    {
        // By default a server has 2 s to answer, and one of Redlock 500 ms. A busy machine may stand still for so long.
        subjects = subjects.with(OnServer::new("redis", Kind::Redis, "response_timeout=3s"));
        subjects = subjects.with(OnServer::new("redis-fair", Kind::Redis, "fair=true&response_timeout=3s"));
        let sentinel = OnServer::new("redis-sentinel", Kind::RedisSentinel, "response_timeout=3s");
        subjects = subjects.with(sentinel.showing(groups(OF_ANOTHER_WAY)));
        let patient = "node_timeout=3s&response_timeout=3s";
        subjects = subjects.with(OnServer::new("redlock", Kind::Redlock(5), patient));
        let cluster = OnServer::new("redis-cluster", Kind::RedisCluster, "response_timeout=3s");
        subjects = subjects.with(cluster.showing(groups(OF_A_CLUSTER)));
        subjects =
            subjects.with(OnServer::new("redis-clock", Kind::Redis, "response_timeout=3s").with_clock());
    }
    subjects
}
