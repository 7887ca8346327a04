//! The cost of locks in ZooKeeper, beside the bare recipe on the same client library.
//!
//! Clients and server on a core each, or the scheduler's choices drown the difference; the server takes core 0, unless
//! `TENURE_BENCH_SERVER_CORE` names another: `taskset -c 1 cargo bench -p tenure-zk --bench zookeeper`, or one of them:
//! `… --bench zookeeper -- hand_off`.

mod bare;
#[path = "../../../benches/support/beside_recipe.rs"]
mod beside_recipe;
#[path = "../../../benches/support/hand_offs.rs"]
mod hand_offs;
#[path = "../../../benches/support/pinning.rs"]
mod pinning;
#[path = "../../../benches/support/process.rs"]
mod process;
mod recipe;
#[path = "../../../benches/support/mod.rs"]
mod support;

fn main() {
    beside_recipe::main::<recipe::Zookeeper>();
}
