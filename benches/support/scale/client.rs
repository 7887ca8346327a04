//! A client's process, as the one that measures sees it.

use super::CHILD;
use crate::process::Process;

pub(crate) struct Client(Process);

impl Client {
    /// Returns once it has connected.
    pub(crate) async fn start(url: &str) -> Self {
        let mut client = Self(Process::start(CHILD, url));
        let [_] = client.ask("processor").await;
        client
    }

    pub(crate) async fn order(&mut self, order: &str) {
        self.0.order(order).await;
    }

    pub(crate) async fn answer(&mut self) -> Vec<u64> {
        self.0.answer().await.split(' ').map(|number| number.parse().expect("a number")).collect()
    }

    /// Gives an order whose answer always has this many numbers.
    pub(crate) async fn ask<const NUMBERS: usize>(&mut self, order: &str) -> [u64; NUMBERS] {
        self.order(order).await;
        self.answer().await.try_into().expect("as many numbers")
    }
}
