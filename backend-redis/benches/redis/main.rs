//! The cost of locks in Redis, beside the bare commands on a connection of the same kind.
//!
//! Clients and server on a core each, or the scheduler's choices drown the difference; the server takes core 0, unless
//! `TENURE_BENCH_SERVER_CORE` names another: `taskset -c 1 cargo bench -p tenure-redis --bench redis`, or one of them:
//! `… --bench redis -- hand_off`.
//! `scale` takes minutes, so it must be named.

mod bare;
mod contended;
mod hand_off;
#[path = "../../../benches/support/hand_offs.rs"]
mod hand_offs;
#[path = "../../../benches/support/one_name.rs"]
mod one_name;
#[path = "../../../benches/support/pinning.rs"]
mod pinning;
#[path = "../../../benches/support/process.rs"]
mod process;
mod renewal;
#[path = "../../../benches/support/scale/mod.rs"]
mod scale;
mod server;
#[path = "../../../benches/support/mod.rs"]
mod support;
mod uncontended;
mod waiting;

use server::Server;
use tokio::runtime::{Builder, Runtime};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == hand_off::CHILD) {
        return runtime().block_on(hand_off::child(&arguments[at + 1..]));
    }
    if let Some(at) = arguments.iter().position(|argument| argument == scale::CHILD) {
        return runtime()
            .block_on(async { scale::child(&server::locks(&arguments[at + 1], false).await).await });
    }
    let named: Vec<&String> = arguments[1..].iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|wanted| *wanted == name);
    let server = Server::start();
    runtime().block_on(async {
        // It answers.
        drop(server.connection().await);
        if wanted("uncontended") {
            uncontended::one(&server).await;
            uncontended::reader(&server).await;
        }
        if wanted("many") {
            uncontended::many(&server).await;
        }
        if wanted("one_name") {
            contended::measure(&server).await;
        }
        if wanted("hand_off") {
            hand_off::measure(&server).await;
        }
        if wanted("waiting") {
            waiting::measure(&server).await;
        }
        if wanted("renewal") {
            renewal::measure(&server).await;
        }
        if named.iter().any(|wanted| *wanted == "scale") {
            scale::measure("redis", &server.url(), &server).await;
        }
    });
}

/// As a small program has it: one thread for all tasks.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}
