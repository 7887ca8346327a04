//! What it takes to keep many leases, and how late the latest renewal comes.

use crate::server::Server;
use std::time::{Duration, Instant};

const LEASES: u32 = 10_000;
const LEASE: Duration = Duration::from_secs(30);
const PERIODS: u32 = 3;
/// The least that is left of any lease, in ms.
const LEAST: &str = "
    local least
    for number = 0, ARGV[1] - 1 do
      local left = redis.call('PTTL', 'tenure:lease ' .. number)
      if not least or left < least then least = left end
    end
    return least";

pub(crate) async fn measure(server: &Server) {
    let (locks, mut connection) = (server.locks().await, server.connection().await);
    let mut guards = Vec::new();
    for number in 0..LEASES {
        let lock = locks.lock(format!("lease {number}")).lease(LEASE);
        guards.push(lock.acquire().await.expect("it is free"));
    }
    let (begin, before, mut least) = (Instant::now(), server.commands().await, LEASE);
    while begin.elapsed() < LEASE / 3 * PERIODS {
        let left: u64 =
            redis::cmd("EVAL").arg(LEAST).arg(0).arg(LEASES).query_async(&mut connection).await.expect("ms");
        least = least.min(Duration::from_millis(left));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let commands = server.commands().await - before;
    let renewals = LEASES * PERIODS;
    let late = (LEASE * 2 / 3).saturating_sub(least);
    println!("redis: {LEASES} leases of {LEASE:?}, kept for {PERIODS} thirds of a lease");
    println!(
        "  {commands} commands: one for {:.0} renewals; the latest came {late:?} late, {:.1} % of its period",
        f64::from(renewals) / f64::from(commands),
        late.as_secs_f64() / (LEASE / 3).as_secs_f64() * 100.0
    );
    assert!(guards.iter().all(|guard| guard.is_held()), "a lease was lost");
    for guard in guards {
        guard.release().await.expect("it was held");
    }
}
