//! Locks of tenure in `ZooKeeper`: ephemeral sequential nodes.
//!
//! [`ZkBackend`] is the store, [`ZkOptions`] says which ensemble and how. The recipe is the one of
//! [ZooKeeper's documentation](https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks), with nodes named
//! as Apache Curator's `InterProcessMutex` names them, so both exclude each other on one path.

mod backend;
mod contender;
mod errors;
mod names;
mod options;
mod order;
mod people;
mod pulse;
mod queue;
mod removal;
mod session;
mod watch;

pub use backend::ZkBackend;
pub use options::ZkOptions;
