//! Other lock libraries, with the bare requests and in two of the workloads of tenure's own benches:
//! `peers redis redis://127.0.0.1:6379/`, or several stores in one command. README.md says what each library does.

mod bare;
mod mysql;
mod postgres;
mod redis;
#[path = "../../support/mod.rs"]
mod support;
mod workload;
mod zookeeper;

use anyhow::{Context, Result};
use std::{env, process::ExitCode, time::Duration};
use tokio::{runtime::Builder, time::timeout};

const STORES: [&str; 5] = ["redis", "postgres", "mariadb", "mysql", "zookeeper"];
/// The time for each store. The workloads need 20 s of it.
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some(wanted) = wanted(&arguments).filter(|wanted| !wanted.is_empty()) else {
        eprintln!("usage: peers STORE URL [STORE URL …]");
        eprintln!("or set TENURE_TEST_REDIS_URL and its like, for the stores to measure");
        eprintln!("a STORE is one of: {}", STORES.join(", "));
        return ExitCode::from(64);
    };
    // As a small program has it: one thread for all tasks.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let mut code = ExitCode::SUCCESS;
    for (store, url) in wanted {
        let measured = runtime.block_on(async {
            let limited = timeout(LIMIT, measure(&store, &url)).await;
            limited.with_context(|| format!("not done after {LIMIT:?}"))?
        });
        if let Err(error) = measured {
            eprintln!("{store}: not measured: {error:#}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// The stores to measure, and where they are. `None` if that is not understood.
fn wanted(arguments: &[String]) -> Option<Vec<(String, String)>> {
    if arguments.is_empty() {
        let named = |store: &str| {
            let url = env::var(format!("TENURE_TEST_{}_URL", store.to_uppercase())).ok()?;
            Some((store.to_owned(), url))
        };
        return Some(STORES.into_iter().filter_map(named).collect());
    }
    let pairs = arguments.chunks(2).map(|pair| match pair {
        [store, url] if STORES.contains(&store.as_str()) => Some((store.clone(), url.clone())),
        _ => None,
    });
    pairs.collect()
}

async fn measure(store: &str, url: &str) -> Result<()> {
    match store {
        "redis" => redis::measure(url).await,
        "postgres" => postgres::measure(url).await,
        "zookeeper" => zookeeper::measure(url).await,
        database => mysql::measure(database, url).await,
    }
}
