//! The conformance suite on every store of this crate: `cargo test --test conformance -- sqlite::waiting`.

#[cfg(feature = "memory")]
mod memory;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper"))]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper"))]
use server::OnServer;
use std::process::ExitCode;
#[cfg(feature = "memory")]
use tenure_conformance::Simulation;
use tenure_conformance::Subjects;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper"))]
use tenure_testbed::Kind;

/// With connections for as many locks as a case holds at once.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const ROW_LOCK: &str = "strategy=row-lock&connections=90&connect_timeout=12s";

/// By default a connection has 5 s to be made. Its dozen steps take longer where a hundred tasks of the suite want to go on.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const PATIENT: &str = "connect_timeout=12s";

/// The groups that a queue in lease rows changes. The rest is shown without one.
#[cfg(any(feature = "sqlite", feature = "mysql", feature = "postgres"))]
const OF_A_QUEUE: &[&str] = &[
    "store",
    "oracle",
    "exclusion",
    "waiting",
    "closing",
    "readers",
    "permits",
    "several",
    "people",
    "faults",
];

/// The groups for which another way to the same servers matters: a Sentinel, a pooler, an ensemble. Other subjects show
/// the rest.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper"))]
const OF_ANOTHER_WAY: &[&str] = &["store", "oracle", "exclusion", "waiting", "people", "faults", "fault_run"];

/// These groups, and those for which it matters that names are spread over servers.
#[cfg(feature = "redis")]
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

/// Whether clients of different nodes exclude each other, by a row's columns and by its record.
#[cfg(feature = "mysql")]
const ON_SEVERAL_NODES: &[&str] = &["exclusion", "exclusion_by_permit"];

/// Returns these groups, after checking that each has cases: the suite would leave out a misspelt one in silence.
#[cfg(any(
    feature = "sqlite",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
fn groups(names: &'static [&'static str]) -> &'static [&'static str] {
    let cases = tenure_conformance::cases();
    for name in names {
        assert!(cases.iter().any(|case| case.group == *name), "there is no group {name:?}");
    }
    names
}

fn main() -> ExitCode {
    tenure_conformance::main(|| async { subjects() })
}

#[allow(unused_mut, reason = "without any store there is nothing to add")]
fn subjects() -> Subjects {
    let mut subjects = Subjects::new();
    // The servers whose cases take longest, one after the other, come first: faults that end connections or processes.
    #[cfg(feature = "zookeeper")]
    {
        // It takes the place of the suite's leases. Shorter ones were seen to end beside other work.
        subjects = subjects.with(OnServer::new("zookeeper", Kind::Zookeeper, "session_timeout=8s"));
        let ensemble = OnServer::new("zookeeper-ensemble", Kind::ZookeeperEnsemble(3), "session_timeout=8s");
        subjects = subjects.with(ensemble.showing(groups(OF_ANOTHER_WAY)));
    }
    #[cfg(feature = "mysql")]
    {
        subjects = subjects.with(OnServer::new("mariadb", Kind::Mariadb, PATIENT));
        let fair = OnServer::new("mariadb-fair", Kind::Mariadb, "fair=true&connect_timeout=12s");
        subjects = subjects.with(fair.showing(groups(OF_A_QUEUE)));
        subjects = subjects.with(OnServer::new("mariadb-row-lock", Kind::Mariadb, ROW_LOCK));
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
        let pooled = OnServer::new("pgbouncer", Kind::Pgbouncer, "pooler=true&connect_timeout=12s");
        subjects = subjects.with(pooled.showing(groups(OF_ANOTHER_WAY)));
        subjects = subjects.with(OnServer::new("postgres-clock", Kind::Postgres, PATIENT).with_clock());
        let row_lock = OnServer::new("postgres-row-lock-clock", Kind::Postgres, ROW_LOCK);
        subjects = subjects.with(row_lock.with_clock());
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
    #[cfg(feature = "memory")]
    {
        subjects = subjects.with(memory::InMemory::default());
        // Where a store has no queue, the policy takes other ways.
        subjects = subjects.with(Simulation::new().polled());
        // And where it has sessions instead of leases.
        subjects = subjects.with(Simulation::new().with_sessions());
    }
    #[cfg(feature = "sqlite")]
    {
        subjects = subjects.with(sqlite::InFile::new());
        subjects = subjects.with(sqlite::InFile::fair(groups(OF_A_QUEUE)));
    }
    subjects
}
