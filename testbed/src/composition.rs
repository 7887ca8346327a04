//! What each kind is made of.

use crate::assembly::Assembly;
use crate::etcd::Etcd;
use crate::galera_node::GaleraNode;
use crate::kind::Kind;
use crate::mysql::Mysql;
use crate::nats::{self, Nats};
use crate::node::Node;
use crate::platform::Platform;
use crate::pooler::Pgbouncer;
use crate::postgres::Postgres;
use crate::recipe::Recipe;
use crate::redis::Redis;
use crate::s3::S3;
use crate::zookeeper::Zookeeper;
use crate::{etcd_cluster, galera, nats_cluster, pooler, redis_cluster, redis_sentinel, zookeeper_ensemble};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// How the servers of this kind (the most special of them) are started.
pub(crate) fn recipe(kind: Kind) -> Arc<dyn Recipe> {
    match kind {
        Kind::Redis | Kind::RedisSentinel | Kind::RedisCluster | Kind::Redlock(_) => Arc::new(Redis::alone()),
        Kind::Postgres => Arc::new(Postgres),
        Kind::Pgbouncer => Arc::new(Pgbouncer::default()),
        Kind::Mariadb => Arc::new(Mysql::Mariadb),
        Kind::Mysql => Arc::new(Mysql::Mysql),
        Kind::Galera => Arc::new(Mysql::Galera(GaleraNode::default())),
        Kind::Zookeeper | Kind::ZookeeperEnsemble(_) => Arc::new(Zookeeper::alone()),
        Kind::Etcd | Kind::EtcdCluster(_) => Arc::new(Etcd::alone()),
        Kind::Nats => Arc::new(Nats::alone()),
        Kind::NatsCluster(_) => Arc::new(Nats::member(nats::Place::default())),
        Kind::S3 => Arc::new(S3),
    }
}

/// Starts what this kind is made of.
pub(crate) async fn start(kind: Kind, platform: Platform) -> io::Result<Assembly> {
    let name = kind.name();
    match kind {
        Kind::RedisSentinel => redis_sentinel::start(platform).await,
        Kind::RedisCluster => redis_cluster::start(platform).await,
        Kind::Redlock(count) => {
            let mut nodes = Vec::new();
            for number in 0..count {
                nodes.push(platform.start(&format!("{name} {number}"), recipe(kind), None).await?);
            }
            Ok(Assembly::of(nodes))
        }
        Kind::Pgbouncer => pooler::start(platform).await,
        Kind::Galera => galera::start(platform).await,
        Kind::ZookeeperEnsemble(count) => zookeeper_ensemble::start(platform, count).await,
        Kind::EtcdCluster(count) => etcd_cluster::start(platform, count).await,
        Kind::NatsCluster(count) => nats_cluster::start(platform, count).await,
        Kind::Redis
        | Kind::Postgres
        | Kind::Mariadb
        | Kind::Mysql
        | Kind::Zookeeper
        | Kind::Etcd
        | Kind::Nats
        | Kind::S3 => platform.start(name, recipe(kind), None).await.map(Assembly::single),
    }
}

/// The URL of the whole, through the proxies.
pub(crate) fn url(assembly: &Assembly, kind: Kind) -> String {
    url_of(assembly, kind, Node::address, Node::url)
}

/// The URL of the whole, past the proxies where clients are not told of them by the servers themselves.
pub(crate) fn direct_url(assembly: &Assembly, kind: Kind) -> String {
    url_of(assembly, kind, Node::direct_address, Node::direct_url)
}

fn url_of(
    assembly: &Assembly,
    kind: Kind,
    address: impl Fn(&Node) -> SocketAddr,
    single: impl Fn(&Node) -> String,
) -> String {
    let all = |nodes: &[Arc<Node>]| {
        nodes.iter().map(|node| address(node).to_string()).collect::<Vec<_>>().join(",")
    };
    match kind {
        Kind::RedisSentinel => {
            let sentinels = &assembly.members[redis_sentinel::DATA..];
            format!("redis+sentinel://{}/{}", all(sentinels), redis_sentinel::SERVICE)
        }
        Kind::RedisCluster => format!("redis+cluster://{}", all(&assembly.members)),
        Kind::Redlock(_) => format!("redlock://{}", all(&assembly.members)),
        Kind::ZookeeperEnsemble(_) => format!("zookeeper://{}", all(&assembly.members)),
        Kind::EtcdCluster(_) => format!("etcd://{}", all(&assembly.members)),
        Kind::NatsCluster(count) => nats::url(&all(&assembly.members), count.into()),
        _ => single(&assembly.members[0]),
    }
}
