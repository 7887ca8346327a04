//! From the call that releases to the grant in another process, beside the bare recipe.

use crate::{
    bare,
    server::{Server, connect, locks},
};
use rustix::time::{ClockId, clock_gettime};
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// What tells a process that it is the other one.
pub(crate) const CHILD: &str = "the-other-process";
const SAMPLES: u32 = 300;
/// In which the other process has begun to wait.
const SETTLE: Duration = Duration::from_millis(40);
const BARE: &str = "/bare/hand-off";

/// The time of the machine, which both processes read alike.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

pub(crate) async fn measure(server: &Server) {
    let (client, ours) = (server.client().await, server.locks().await);
    bare::prepare(&client, BARE).await;
    let mut other = Other::start(server.address());
    let (mut theirs, mut own) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let node = bare::acquire(&client, BARE).await;
        other.begin("bare").await;
        let begin = now();
        bare::release(&client, &node).await;
        theirs.push(other.granted().await.saturating_sub(begin));

        let guard = ours.lock("hand-off").acquire().await.expect("it is free");
        other.begin("tenure").await;
        let begin = now();
        guard.release().await.expect("it was held");
        own.push(other.granted().await.saturating_sub(begin));
    }
    println!("zookeeper: from release to the grant in another process, the median of {SAMPLES}");
    let mut bare = None;
    for (name, samples) in [("the bare recipe", theirs), ("tenure", own)] {
        let mut samples = samples;
        samples.sort();
        let [low, median, high] = [10, 50, 90].map(|percent| samples[samples.len() * percent / 100]);
        let bare = *bare.get_or_insert(median);
        println!(
            "  {name:<24} {median:>10.2?} (tenth to ninetieth percentile: {low:.2?} to {high:.2?}), {:.2} times the bare",
            median.as_secs_f64() / bare.as_secs_f64()
        );
    }
    ours.close().await;
}

/// The other process, as this one sees it.
struct Other {
    _process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(address: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("a path"))
            .args([CHILD, address])
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
    async fn begin(&mut self, way: &str) {
        self.orders.write_all(format!("{way}\n").as_bytes()).await.expect("a pipe");
        tokio::time::sleep(SETTLE).await;
    }

    async fn granted(&mut self) -> Duration {
        let line = self.answers.next_line().await.expect("a pipe").expect("an answer");
        Duration::from_nanos(line.parse().expect("a number"))
    }
}

/// What the other process does.
pub(crate) async fn child(address: &str) {
    let (client, ours) = (connect(address).await, locks(address).await);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(way)) = orders.next_line().await {
        let granted = if way == "bare" {
            let node = bare::acquire(&client, BARE).await;
            let granted = now();
            bare::release(&client, &node).await;
            granted
        } else {
            let guard = ours.lock("hand-off").acquire().await.expect("it comes free");
            let granted = now();
            guard.release().await.expect("it was held");
            granted
        };
        println!("{}", granted.as_nanos());
    }
}
