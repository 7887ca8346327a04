//! Servers to test against, found or started, with a [`Saboteur`](tenure_conformance::saboteur::Saboteur) for each.
//!
//! It serves this repository alone: the tests and benches of the stores, and the suite on each of them. What the author
//! of another store needs is in `tenure-conformance`.
//!
//! A server is looked for in this order: a URL in the environment (`TENURE_TEST_REDIS_URL`), a container
//! (`TENURE_TEST_REDIS_IMAGE` names another image), the programs on this machine. `TENURE_TEST_USE=env|docker|local`
//! allows only one of these ways. Clients reach the server through a [`Proxy`](tenure_conformance::proxy::Proxy), so its address
//! stays the same whatever happens to it.
//!
//! Moto, which emulates S3, is a program in Python, and never a container: `./test` installs it in `target/moto`.
//!
//! If no registry answers, `testbed/images/build` builds the images that it would have. Containers of an ensemble
//! share the host's network, which needs Linux, as the programs do.
//!
//! Nothing stays behind: containers, processes and directories go with the [`Server`], or with the test process however
//! it ends, because a small process of its own waits for that.
//!
//! | you look for | it is in |
//! |---|---|
//! | a server, or several that are one to their clients | [`Server`], [`Kind`] |
//! | each of those several | [`Member`] |
//! | how it was found, which ways may be tried, why there is none | [`Way`], [`Use`], [`Unavailable`] |
//! | a clock for a store in files | [`OwnClock`] |
//! | ports for a server that a test starts by itself | [`free_port`], [`free_ports`] |
//! | the end of one session of ZooKeeper | [`end_session`] |
//! | a certificate for a server that a test starts by itself | [`certify`] |
//! | claims, and waits that end | [`claims`] |
//! | another project's client, in Python | [`python`](fn@python) |
//!
//! # Reading the code
//!
//! Each layer uses only those below it.
//!
//! | layer | files of `src` |
//! |---|---|
//! | the fault run as a program (the feature *faults*) | `bin/tenure-conformance` |
//! | what tests have | `server`, `member`, `python`, `certificate`, `claims` |
//! | how it is found | `find` |
//! | how it is hurt | `sabotage` |
//! | what each kind is made of | `composition`; `redis_sentinel`, `redis_cluster`, `pooler`, `galera`, `zookeeper_ensemble`, `etcd_cluster`, `nats_cluster` |
//! | how one server of each kind is started and administered | `redis`, `redis_node`, `postgres`, `mysql`, `galera_node`, `zookeeper`, `etcd`, `nats`, `s3` |
//! | servers as clients see them | `assembly`, those that are one; `links` and `socks`, the network between them; `platform`, `node` |
//! | what runs them | `engine`; `container`; `program`, `clock`, `processes`, `ports`; `cleanup` and `owner`, so that nothing stays behind |
//! | what kinds of servers differ in | `recipe`, `admin` |
//! | ZooKeeper's protocol; etcd's; NATS' | `jute`; `gateway`; `jetstream` |
//! | words | `kind`, `way`, `unavailable`, `secret` |

mod admin;
mod assembly;
mod certificate;
pub mod claims;
mod cleanup;
mod clock;
mod composition;
mod container;
mod engine;
mod etcd;
mod etcd_cluster;
mod find;
mod galera;
mod galera_node;
mod gateway;
mod jetstream;
mod jute;
mod kind;
mod links;
mod member;
mod mysql;
mod nats;
mod nats_cluster;
mod node;
mod owner;
mod platform;
mod pooler;
mod ports;
mod postgres;
mod processes;
mod program;
mod python;
mod recipe;
mod redis;
mod redis_cluster;
mod redis_node;
mod redis_sentinel;
mod s3;
mod sabotage;
mod secret;
mod server;
mod socks;
mod unavailable;
mod way;
mod zookeeper;
mod zookeeper_ensemble;

pub use certificate::certify;
pub use clock::OwnClock;
pub use kind::Kind;
pub use member::Member;
pub use ports::{free_port, free_ports};
pub use python::python;
pub use server::Server;
pub use unavailable::Unavailable;
pub use way::{Use, Way};
pub use zookeeper::end_session;
