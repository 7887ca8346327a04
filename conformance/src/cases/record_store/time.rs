//! The store's time is one clock, fine enough for leases.

use super::requests::{put, remove};
use crate::{Check, Stage, check::ensure, pause};
use std::time::Duration;
use tenure_core::{lease::MIN_LEASE, record::StoreTime};
use tokio::time::Instant;

/// The coarsest unit of a store's time.
const COARSEST: Duration = MIN_LEASE.checked_div(10).unwrap();
/// How many reads the store has to show that its unit is fine enough.
const READS: u64 = 500;
/// How long the store's time is compared with a clock here.
const COMPARED: Duration = Duration::from_millis(500);

/// The store's time advances in steps of 10 ms or less, as fast as a clock here.
pub(super) async fn read_tells_time_in_small_steps(stage: &Stage) -> Check {
    let ([client], key) = (stage.record_clients().await?, stage.name("a"));
    let (first, mut last, mut unit, mut steps) = (client.read(&key).await?.now, None, 0, 0);
    let margin = client.margin();
    for number in 0..READS {
        // The pauses vary, so that the unit found is the clock's own.
        pause::settle(Duration::from_millis(1 + number * number % 11)).await;
        let now = client.read(&key).await?.now;
        ensure_not_back(last.unwrap_or(first), now, margin, "the `read` before it")?;
        if now != last.unwrap_or(first) {
            steps += 1;
            unit = greatest_common_divisor(unit, micros(now.since(first)));
        }
        last = Some(now);
        if steps > 5 && unit <= micros(COARSEST) {
            break;
        }
    }
    ensure!(steps > 0, "`read` told the same time {READS} times: the store's time must advance");
    ensure!(
        unit <= micros(COARSEST),
        "`read` tells time in units of {:?}: the shortest lease is {MIN_LEASE:?}, so {COARSEST:?} or less are needed",
        Duration::from_micros(unit)
    );
    // Both reads lie between the outer instants, and the inner instants lie between the reads.
    let outer = Instant::now();
    let from = client.read(&key).await?.now;
    let inner = Instant::now();
    pause::settle(COMPARED).await;
    let inner = inner.elapsed();
    let passed = client.read(&key).await?.now.since(from);
    let outer = outer.elapsed();
    let tolerance = COARSEST * 2 + outer / 100 + margin;
    ensure!(
        passed + tolerance >= inner && passed <= outer + tolerance,
        "`read`: the store's time advanced by {passed:?} while {outer:?} passed here: `StoreTime` counts microseconds"
    );
    Ok(())
}

/// Each request is sent after the answer to the one before it, so its time is no earlier, even if they differ in client
/// or kind, by more than the margin.
pub(super) async fn read_tells_one_clock(stage: &Stage) -> Check {
    let ([one, other], key) = (stage.record_clients().await?, stage.name("a"));
    put(&one, &key, "a").await?;
    let (margin, mut last) = (one.margin(), one.read(&key).await?.now);
    for _ in 0..50 {
        for client in [&one, &other] {
            let own = client.read(&key).await?.now;
            ensure_not_back(
                last,
                own,
                margin,
                "a `read` by another client: clients' own clocks differ, so ask the store's",
            )?;
            for (_, stored) in client.list(&key).await? {
                ensure!(
                    own <= stored.now + margin,
                    "`list` told a time {:?} before that of the `read` before it: both tell one clock",
                    own.since(stored.now)
                );
            }
            last = client.read(&key).await?.now;
            ensure_not_back(own, last, margin, "the `read` before it")?;
        }
    }
    remove(&one, &key).await
}

#[track_caller]
fn ensure_not_back(before: StoreTime, now: StoreTime, margin: Duration, than: &str) -> Check {
    ensure!(before <= now + margin, "`read` told a time {:?} before that of {than}", before.since(now));
    Ok(())
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

const fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}
