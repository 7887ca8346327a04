//! Servers to test against, found or started, with a [`Saboteur`](crate::saboteur::Saboteur) for each.
//!
//! A server is looked for in this order: a URL in the environment (`TENURE_TEST_REDIS_URL`), a container
//! (`TENURE_TEST_REDIS_IMAGE` names another image), the programs on this machine. `TENURE_TEST_USE=env|docker|local`
//! allows only one of these ways. Clients reach the server through a [`Proxy`](crate::proxy::Proxy), so its address
//! stays the same whatever happens to it.
//!
//! If no registry answers, `conformance/images/build` builds the images that it would have. Containers of an ensemble
//! share the host's network, which needs Linux, as the programs do.
//!
//! Nothing stays behind: containers, processes and directories go with the [`Server`], or with the test process however
//! it ends, because a small process of its own waits for that.

mod admin;
mod assembly;
mod composition;
mod container;
mod engine;
mod ensemble;
mod find;
mod guard;
mod jute;
mod kind;
mod links;
mod member;
mod mysql;
mod node;
mod owner;
mod platform;
mod pooler;
mod postgres;
mod processes;
mod program;
mod recipe;
mod redis;
mod redis_cluster;
mod redis_node;
mod redis_sentinel;
mod resp;
mod sabotage;
mod secret;
mod server;
mod unavailable;
mod way;
mod zookeeper;
mod zookeeper_ensemble;

pub use kind::Kind;
pub use member::Member;
pub use server::Server;
pub use unavailable::Unavailable;
pub use way::{Use, Way};
