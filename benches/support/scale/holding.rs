//! The cost to acquire, keep and release many leases in one process.

use super::{LEASE, Leases, Server, client::Client, server_core::ServerCore};
use std::time::{Duration, Instant};

const COUNTS: [u32; 3] = [1_000, 10_000, 100_000];

pub(crate) async fn measure(store: &str, url: &str, server: &impl Server) {
    // Each is renewed twice.
    let kept = LEASE * 2 / 3;
    println!("{store}: leases of {LEASE:?}, held by one client and kept for {kept:?}");
    println!("   leases  acquired  bytes each requests/s    latest   client  server  lost  released");
    for count in COUNTS {
        let leases = Leases { count };
        let mut process = Client::start(url).await;
        let [acquired, memory] = process.ask(&format!("acquire {count}")).await;
        let [before] = process.ask("processor").await;
        let (begin, core, requests) = (Instant::now(), ServerCore::now(), server.requests().await);
        let least = server.least_left(leases, kept).await;
        let (requests, busy, time) = (server.requests().await - requests, core.busy(), begin.elapsed());
        let [after] = process.ask("processor").await;
        let [released, lost] = process.ask("release").await;
        let client = Duration::from_nanos(after.saturating_sub(before)).div_duration_f64(time);
        println!(
            "  {count:>7} {:>9} {:>11} {:>10.1} {:>9} {:>7.1}% {busy:>6}% {lost:>5} {:>9}",
            seconds(Duration::from_nanos(acquired)),
            memory / u64::from(count),
            f64::from(requests) / time.as_secs_f64(),
            seconds((LEASE * 2 / 3).saturating_sub(least)),
            client * 100.0,
            seconds(Duration::from_nanos(released)),
        );
    }
    println!("  latest: how long after its third of the lease the latest renewal came, among 1,000 leases;");
    println!("  client, server: how long the client's process and the server's core worked, of that time");
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
