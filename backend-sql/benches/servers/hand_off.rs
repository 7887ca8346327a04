//! From the call that releases to the grant in another process, beside a lock of the server's own.

use crate::{
    bare::{Bare, Pool},
    place::{Place, Way, locks},
};
use rustix::time::{ClockId, clock_gettime};
use std::{process::Stdio, time::Duration};
use tenure_core::{ClaimId, Locks};
use tenure_testbed::Kind;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// What tells a process that it is the other one.
pub(crate) const CHILD: &str = "the-other-process";
const SAMPLES: u32 = 100;
/// In which the other process has begun to wait.
const SETTLE: Duration = Duration::from_millis(40);

/// The time of the machine, which both processes read alike.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Each way's number and lock, for both processes.
async fn all(url: &str) -> Vec<(Way, Locks)> {
    let kind = if url.starts_with("postgres") { Kind::Postgres } else { Kind::Mysql };
    let mut all = Vec::new();
    for way in Way::all(kind) {
        all.push((way, locks(url, way).await));
    }
    all
}

pub(crate) async fn measure(place: &Place) {
    let (mut bare, ours) = (place.bare().await, all(&place.url()).await);
    let pool = Pool::connect(&place.url(), false, 2).await;
    let mut other = Other::start(&place.url());
    let (bare_name, one) = match place.kind {
        Kind::Postgres => ("pg_advisory_lock", "SELECT 1::bigint"),
        _ => ("GET_LOCK", "SELECT 1"),
    };
    let mut ways = vec![("SELECT 1", vec![]), ("one bare statement", vec![]), (bare_name, vec![])];
    ways.extend(ours.iter().map(|(way, _)| (way.name(), vec![])));
    for _ in 0..SAMPLES {
        let begin = now();
        bare.number(one).await;
        ways[0].1.push(now().saturating_sub(begin));
        let begin = now();
        pool.acquire(&ClaimId::new().to_string(), "x").await;
        ways[1].1.push(now().saturating_sub(begin));
        bare.lock().await;
        other.begin(0).await;
        let begin = now();
        bare.unlock().await;
        ways[2].1.push(other.granted().await.saturating_sub(begin));
        for (number, (_, locks)) in ours.iter().enumerate() {
            let guard = locks.lock(format!("hand-off {number}")).acquire().await.expect("it is free");
            other.begin(number + 1).await;
            let begin = now();
            guard.release().await.expect("it was held");
            ways[number + 3].1.push(other.granted().await.saturating_sub(begin));
        }
    }
    println!("{}: from release to the grant in another process, the median of {SAMPLES}", place.kind);
    let mut medians = Vec::new();
    for (name, mut samples) in ways {
        samples.sort();
        let [low, median, high, last] =
            [10, 50, 90, 99].map(|percent| samples[samples.len() * percent / 100]);
        medians.push(median);
        let times =
            |number: usize| median.as_secs_f64() / medians.get(number).unwrap_or(&median).as_secs_f64();
        println!(
            "  {name:<24} {median:>10.2?} (tenth to ninetieth percentile: {low:.2?} to {high:.2?}, ninety-ninth: {last:.2?}), \
             {:.2} bare statements, {:.2} times {bare_name}",
            times(1),
            times(2)
        );
    }
}

/// The other process, as this one sees it.
struct Other {
    _process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(url: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("a path"))
            .args([CHILD, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("another process");
        let orders = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        Self { _process: process, orders, answers }
    }

    /// Has it wait in one of the ways.
    async fn begin(&mut self, way: usize) {
        self.orders.write_all(format!("{way}\n").as_bytes()).await.expect("a pipe");
        tokio::time::sleep(SETTLE).await;
    }

    async fn granted(&mut self) -> Duration {
        let line = self.answers.next_line().await.expect("a pipe").expect("an answer");
        Duration::from_nanos(line.parse().expect("a number"))
    }
}

/// What the other process does.
pub(crate) async fn child(url: &str) {
    let (mut bare, ours) = (Bare::connect(url).await, all(url).await);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(way)) = orders.next_line().await {
        let way: usize = way.parse().expect("a number");
        let granted = if way == 0 {
            bare.lock().await;
            let granted = now();
            bare.unlock().await;
            granted
        } else {
            let name = format!("hand-off {}", way - 1);
            let guard = ours[way - 1].1.lock(name).acquire().await.expect("it comes free");
            let granted = now();
            guard.release().await.expect("it was held");
            granted
        };
        println!("{}", granted.as_nanos());
    }
}
