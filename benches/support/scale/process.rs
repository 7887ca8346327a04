//! Another process, as the one that measures sees it.

use super::CHILD;
use std::process::Stdio;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// Killed when dropped.
pub(crate) struct Process {
    _child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Returns once it has connected.
    pub(crate) async fn start(url: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("a path"))
            .args([CHILD, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("another process");
        let orders = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut started = Self { _child: process, orders, answers };
        let [_] = started.ask("processor").await;
        started
    }

    pub(crate) async fn order(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.expect("a pipe");
    }

    pub(crate) async fn answer(&mut self) -> Vec<u64> {
        let line = self.answers.next_line().await.expect("a pipe").expect("an answer");
        line.split(' ').map(|number| number.parse().expect("a number")).collect()
    }

    /// Gives an order whose answer always has this many numbers.
    pub(crate) async fn ask<const NUMBERS: usize>(&mut self, order: &str) -> [u64; NUMBERS] {
        self.order(order).await;
        self.answer().await.try_into().expect("as many numbers")
    }
}
