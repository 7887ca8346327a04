//! How many cycles a growing number of processes gets through when they contend for the same names.

use super::{
    Leases, Server,
    child::{CONTENDING, CONTENTION},
    client::Client,
    server_core::ServerCore,
};
use std::time::Duration;

/// They exist already, as those of the leases that were held before.
const NAMES: Leases = Leases { count: 10_000 };
const PROCESSES: [u32; 4] = [1, 2, 4, 8];

pub(crate) async fn measure(store: &str, url: &str, server: &impl Server) {
    println!(
        "{store}: {} names contended by processes of {CONTENDING} tasks each, for {CONTENTION:?}",
        NAMES.count
    );
    println!("  processes  cycles/s times one     median       99th requests/s  clients  server failed");
    let mut alone = None;
    for count in PROCESSES {
        let mut processes = Vec::new();
        for _ in 0..count {
            processes.push(Client::start(url).await);
        }
        let (core, requests) = (ServerCore::now(), server.requests().await);
        for process in &mut processes {
            process.order(&format!("contend {}", NAMES.count)).await;
        }
        tokio::time::sleep(CONTENTION).await;
        let (busy, requests) = (core.busy(), server.requests().await - requests);
        let (mut processor, mut failed, mut waits) = (0_u64, 0_u64, Vec::<u64>::new());
        for process in &mut processes {
            let answer = process.answer().await;
            let [its_processor, its_failed, its_waits @ ..] = answer.as_slice() else {
                panic!("at least two numbers")
            };
            processor += *its_processor;
            failed += *its_failed;
            waits.extend_from_slice(its_waits);
        }
        waits.sort_unstable();
        let [median, late] = [50, 99].map(|percent| Duration::from_nanos(waits[waits.len() * percent / 100]));
        let a_second = |number: u32| f64::from(number) / CONTENTION.as_secs_f64();
        let cycles = a_second(u32::try_from(waits.len()).expect("not so many"));
        let clients = Duration::from_nanos(processor).div_duration_f64(CONTENTION);
        println!(
            "  {count:>9} {cycles:>9.0} {:>9.2} {median:>10.2?} {late:>10.2?} {:>10.0} {:>7.0}% {busy:>6}% {failed:>6}",
            cycles / *alone.get_or_insert(cycles),
            a_second(requests),
            clients * 100.0,
        );
    }
    println!("  median, 99th: of the time from the call to the grant;");
    println!("  clients, server: how long all clients and the server's core worked, of that time");
}
