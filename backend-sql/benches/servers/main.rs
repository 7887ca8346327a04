//! The cost of locks in database servers, beside bare statements on the same driver.
//!
//! This machine's own server programs, on core 0, unless `TENURE_BENCH_SERVER_CORE` names another; the clients on core
//! 1, or the scheduler's choices drown the difference: `cargo bench -p tenure-sql --all-features --bench servers`, or
//! some of it: `… --bench servers -- postgres hand_off`.
//! `scale` takes minutes, so it must be named; only PostgreSQL has it.

mod bare;
mod contended;
mod hand_off;
#[path = "../../../benches/support/hand_offs.rs"]
mod hand_offs;
mod many;
#[path = "../../../benches/support/one_name.rs"]
mod one_name;
#[path = "../../../benches/support/pinning.rs"]
mod pinning;
mod place;
mod pool;
#[path = "../../../benches/support/process.rs"]
mod process;
mod renewal;
#[path = "../../../benches/support/scale/mod.rs"]
mod scale;
#[path = "../../../benches/support/mod.rs"]
mod support;
mod uncontended;
mod waiting;

use place::{Place, Way};
use rustix::thread::{CpuSet, sched_setaffinity};
use tenure_testbed::Kind;
use tokio::runtime::{Builder, Runtime};

const KINDS: [Kind; 3] = [Kind::Postgres, Kind::Mariadb, Kind::Mysql];
const FIGURES: [&str; 7] = ["uncontended", "many", "one_name", "hand_off", "waiting", "renewal", "scale"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == hand_off::CHILD) {
        return runtime().block_on(hand_off::child(&arguments[at + 1]));
    }
    if let Some(at) = arguments.iter().position(|argument| argument == scale::CHILD) {
        let locks = place::locks(&arguments[at + 1], Way::LeaseRow);
        return runtime().block_on(async { scale::child(&locks.await).await });
    }
    let named: Vec<&str> =
        arguments[1..].iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    // Each list is narrowed by its own words alone.
    let wanted =
        |word: &str, list: &[&str]| named.contains(&word) || !list.iter().any(|other| named.contains(other));
    let kinds = KINDS.map(Kind::name);
    for kind in KINDS.into_iter().filter(|kind| wanted(kind.name(), &kinds)) {
        // The server inherits the core on which it is started.
        stay_on(pinning::server_core());
        let place = runtime().block_on(Place::start(kind));
        stay_on(1);
        let place = match place {
            Ok(place) => place,
            Err(why) => {
                println!("{kind}: not measured: {why}");
                continue;
            }
        };
        runtime().block_on(async {
            if wanted("uncontended", &FIGURES) {
                uncontended::measure(&place).await;
            }
            if wanted("many", &FIGURES) {
                many::measure(&place).await;
            }
            if wanted("one_name", &FIGURES) {
                contended::measure(&place).await;
            }
            if wanted("hand_off", &FIGURES) {
                hand_off::measure(&place).await;
            }
            if wanted("waiting", &FIGURES) {
                waiting::measure(&place).await;
            }
            if wanted("renewal", &FIGURES) {
                renewal::measure(&place).await;
            }
            if kind == Kind::Postgres && named.contains(&"scale") {
                scale::measure(kind.name(), &place.url(), &place).await;
            }
        });
    }
}

/// This thread, and those that it starts from now on.
fn stay_on(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).expect("two cores");
}

/// As a small program has it: one thread for all tasks.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}
