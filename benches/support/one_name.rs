//! Many tasks of a process hand one name on, beside the bare cycle of one task, with no other client.

use crate::support::{Way, record, report};
use std::time::{Duration, Instant};
use tenure_core::Locks;
use tokio::task::JoinSet;

const TASKS: u32 = 16;
/// How often each task has the name in a round, without succession and with it.
const TIMES: [u32; 2] = [10, 200];
const ROUNDS: u32 = 30;
/// After which no other round begins.
const LONGEST: Duration = Duration::from_secs(15);
/// How many bare cycles a round has.
const CYCLES: u32 = 50;

/// Reports how many hand-offs there are in the time of a bare cycle, with succession and without. Leaves it on.
pub(crate) async fn measure(store: &str, locks: &Locks, bare: impl AsyncFn()) {
    for (successors, times) in [0, locks.capabilities().succession].into_iter().zip(TIMES) {
        let locks = locks.clone().with_succession(successors).expect("the store can reserve tokens");
        let (mut alone, mut handed) = (Way::new("the bare cycle"), Way::new("a hand-off"));
        let mut waits = Way::new("from asking to the grant");
        // Rows, prepared statements.
        bare().await;
        hand_on(&locks, times).await;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            alone.round(CYCLES, async || bare().await).await;
            let start = Instant::now();
            let waited = hand_on(&locks, times).await;
            handed.rounds.push(start.elapsed() / (TASKS * times));
            waits.rounds.extend(waited);
            if begin.elapsed() > LONGEST {
                break;
            }
        }
        let succession = match successors {
            0 => "no succession".to_owned(),
            _ => format!("succession={successors}"),
        };
        let what = format!("{store}: {TASKS} tasks, one name, {succession}");
        report(&what, &alone, &handed);
        let ([each], [wait]) = (handed.percentiles([50]), waits.percentiles([50]));
        let rate = format!("{:.0}", each.as_secs_f64().recip());
        println!("  {rate} hand-offs a second; {wait:.2?} {}", waits.name);
        record(&what, &rate, "hand-offs a second", &[&waits]);
    }
}

/// Each task has the name so many times. Returns how long each wait for it took.
///
/// The tasks stand in one queue, at whose end a task that releases the name asks again. So nearly every grant goes to
/// another task than the one before; only the first task may have it twice, before the others have begun.
async fn hand_on(locks: &Locks, times: u32) -> Vec<Duration> {
    let tasks: JoinSet<Vec<Duration>> = (0..TASKS)
        .map(|_| {
            let lock = locks.lock("one name");
            async move {
                let mut waits = Vec::new();
                for _ in 0..times {
                    let asked = Instant::now();
                    let guard = lock.acquire().await.expect("it comes free");
                    waits.push(asked.elapsed());
                    guard.release().await.expect("it was held");
                }
                waits
            }
        })
        .collect();
    tasks.join_all().await.concat()
}
