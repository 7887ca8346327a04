//! The cost of keeping many leases, and how late the latest renewal comes.

use crate::{
    scale::{self, Leases},
    server::Server,
    support::record,
};
use std::time::{Duration, Instant};

const LEASES: u32 = 10_000;
const LEASE: Duration = Duration::from_secs(30);
const PERIODS: u32 = 3;
/// The least that is left, in ms, of leases whose names are a prefix and a number. The arguments are the prefix, how many
/// leases there are, and how far the next one to look at is.
const LEAST: &str = "
    local least
    for number = 0, tonumber(ARGV[2]) - 1, tonumber(ARGV[3]) do
      local left = redis.call('PTTL', 'tenure:' .. ARGV[1] .. number)
      if not least or left < least then least = left end
    end
    return least";

pub(crate) async fn measure(server: &Server) {
    let locks = server.locks().await;
    let mut guards = Vec::new();
    for number in 0..LEASES {
        let lock = locks.lock(format!("lease {number}")).lease(LEASE);
        guards.push(lock.acquire().await.expect("it is free"));
    }
    let before = server.commands().await;
    let least = least_left(server, "lease ", (LEASES, 1), LEASE / 3 * PERIODS).await;
    let commands = server.commands().await - before;
    let renewals = LEASES * PERIODS;
    let late = (LEASE * 2 / 3).saturating_sub(least);
    let what = format!("redis: {LEASES} leases of {LEASE:?}, kept for {PERIODS} thirds of a lease");
    println!("{what}");
    let each = format!("{:.0}", f64::from(renewals) / f64::from(commands));
    let percent = format!("{:.1}", late.as_secs_f64() / (LEASE / 3).as_secs_f64() * 100.0);
    println!(
        "  {commands} commands: one for {each} renewals; the latest came {late:?} late, {percent} % of its period"
    );
    record(&what, &each, "renewals a command", &[]);
    record(&what, &percent, "% of a period late", &[]);
    assert!(guards.iter().all(|guard| guard.is_held()), "a lease was lost");
    for guard in guards {
        guard.release().await.expect("it was held");
    }
}

/// The least that was left of these leases while it looked, which it does for this long.
pub(crate) async fn least_left(
    server: &Server,
    prefix: &str,
    (count, step): (u32, u32),
    time: Duration,
) -> Duration {
    let (mut connection, mut least) = (server.connection().await, Duration::MAX);
    let begin = Instant::now();
    while begin.elapsed() < time {
        let mut look = redis::cmd("EVAL");
        look.arg(LEAST).arg(0).arg(prefix).arg(count).arg(step);
        let left: i64 = look.query_async(&mut connection).await.expect("ms");
        // Less than nothing is left of one that has expired.
        least = least.min(Duration::from_millis(u64::try_from(left).unwrap_or_default()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    least
}

impl scale::Server for Server {
    async fn requests(&self) -> u32 {
        self.commands().await
    }

    async fn least_left(&self, leases: Leases, time: Duration) -> Duration {
        least_left(self, &leases.prefix(), (leases.count, leases.step()), time).await
    }
}
