//! The other processes, which carry out orders.

use super::{LEASE, Leases};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use tenure_core::{Guard, Locks};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    task::JoinSet,
};

/// The argument that starts one of them.
pub(crate) const CHILD: &str = "one-of-many-processes";
/// How many tasks of a process acquire and release leases.
const HOLDING: u32 = 64;
/// How many tasks of a process contend.
pub(crate) const CONTENDING: u32 = 16;
/// For how long they do.
pub(crate) const CONTENTION: Duration = Duration::from_secs(20);
/// How long they wait for one name at most.
const WAIT: Duration = Duration::from_secs(10);

/// Reads orders, and answers each with a line of numbers.
pub(crate) async fn child(locks: &Locks) {
    // Connections, statements, and what else the first lock brings with it.
    let first = locks.lock(format!("first of {}", std::process::id()));
    first.acquire().await.expect("it is free").release().await.expect("it was held");
    let mut held = Vec::new();
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(order)) = orders.next_line().await {
        let (order, count) = order.split_once(' ').unwrap_or((order.as_str(), "0"));
        let leases = Leases { count: count.parse().expect("a number") };
        let answer = match order {
            "acquire" => {
                let (begin, before) = (Instant::now(), resident());
                held = acquire(locks, leases).await;
                vec![nanos(begin.elapsed()), resident().saturating_sub(before)]
            }
            "release" => {
                let begin = Instant::now();
                let lost = release(std::mem::take(&mut held)).await;
                vec![nanos(begin.elapsed()), lost]
            }
            "contend" => contend(locks, leases).await,
            "processor" => vec![processor()],
            other => panic!("no order: {other}"),
        };
        let numbers: Vec<String> = answer.iter().map(ToString::to_string).collect();
        println!("{}", numbers.join(" "));
    }
}

/// Each task's share of the leases.
async fn acquire(locks: &Locks, leases: Leases) -> Vec<Vec<Guard>> {
    let tasks: JoinSet<Vec<Guard>> = (0..HOLDING)
        .map(|task| {
            let locks = locks.clone();
            async move {
                let (mut share, mut number) = (Vec::new(), task);
                while number < leases.count {
                    let lock = locks.lock(leases.name(number)).lease(LEASE);
                    share.push(lock.acquire().await.expect("it is free"));
                    number += HOLDING;
                }
                share
            }
        })
        .collect();
    tasks.join_all().await
}

/// How many of them were lost.
async fn release(held: Vec<Vec<Guard>>) -> u64 {
    let tasks: JoinSet<u64> = held
        .into_iter()
        .map(|share| async move {
            let mut lost = 0_u64;
            for guard in share {
                lost += u64::from(guard.release().await.is_err());
            }
            lost
        })
        .collect();
    tasks.join_all().await.into_iter().sum()
}

/// The processor time, how often a lock was not acquired or was lost, and how long each other acquisition took.
async fn contend(locks: &Locks, leases: Leases) -> Vec<u64> {
    let (begin, before) = (Instant::now(), processor());
    let tasks: JoinSet<(u64, Vec<u64>)> = (0..CONTENDING)
        .map(|_| {
            let locks = locks.clone();
            async move {
                let (mut failed, mut waits) = (0_u64, Vec::new());
                while begin.elapsed() < CONTENTION {
                    let lock = locks.lock(leases.name(fastrand::u32(..leases.count))).wait(WAIT);
                    let asked = Instant::now();
                    if let Ok(guard) = lock.acquire().await {
                        waits.push(nanos(asked.elapsed()));
                        failed += u64::from(guard.release().await.is_err());
                    } else {
                        failed += 1;
                    }
                }
                (failed, waits)
            }
        })
        .collect();
    let (failed, waits): (Vec<u64>, Vec<Vec<u64>>) = tasks.join_all().await.into_iter().unzip();
    let mut answer = vec![processor().saturating_sub(before), failed.iter().sum::<u64>()];
    answer.extend(waits.into_iter().flatten());
    answer
}

/// How much memory this process has, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes * 1024
}

/// How long processors have worked for this process.
fn processor() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    nanos(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second")))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("less than a century")
}
