//! Another process of a bench, as the one that measures sees it.

use rustix::time::{ClockId, clock_gettime};
use std::{fmt::Display, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// In which the other process has begun to wait.
const SETTLE: Duration = Duration::from_millis(40);

/// The time of the machine, which all processes read alike.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// A process that answers each order with a line. Killed when dropped.
pub(crate) struct Process {
    _child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program with its part, and where the server is.
    pub(crate) fn start(part: &str, address: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args([part, address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("another process");
        let orders = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { _child: child, orders, answers }
    }

    pub(crate) async fn order(&mut self, order: impl Display) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.expect("a pipe");
    }

    pub(crate) async fn answer(&mut self) -> String {
        self.answers.next_line().await.expect("a pipe").expect("an answer")
    }

    /// Has it wait for the lock in one of the ways.
    pub(crate) async fn waits(&mut self, way: impl Display) {
        self.order(way).await;
        tokio::time::sleep(SETTLE).await;
    }

    /// When it was granted the lock.
    pub(crate) async fn granted(&mut self) -> Duration {
        Duration::from_nanos(self.answer().await.parse().expect("a number"))
    }
}
