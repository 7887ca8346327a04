//! The cost of locks in ZooKeeper, beside the bare recipe on the same client library.
//!
//! Clients and server on a core each, or the scheduler's choices drown the difference; the server takes core 0, unless
//! `TENURE_BENCH_SERVER_CORE` names another: `taskset -c 1 cargo bench -p tenure-zk --bench zookeeper`, or one of them:
//! `… --bench zookeeper -- hand_off`.

mod bare;
mod hand_off;
#[path = "../../../benches/support/hand_offs.rs"]
mod hand_offs;
#[path = "../../../benches/support/pinning.rs"]
mod pinning;
#[path = "../../../benches/support/process.rs"]
mod process;
mod server;
#[path = "../../../benches/support/mod.rs"]
mod support;
mod uncontended;

use server::Server;
use tokio::runtime::{Builder, Runtime};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == hand_off::CHILD) {
        return runtime().block_on(hand_off::child(&arguments[at + 1]));
    }
    let named: Vec<&String> = arguments[1..].iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|wanted| *wanted == name);
    let server = Server::start();
    runtime().block_on(async {
        if wanted("uncontended") {
            uncontended::measure(&server).await;
        }
        if wanted("hand_off") {
            hand_off::measure(&server).await;
        }
    });
}

/// As a small program has it: one thread for all tasks.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}
