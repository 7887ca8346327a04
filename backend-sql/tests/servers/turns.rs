//! Clients that take turns while something goes wrong, and a resource that would notice.

use crate::{LONG, Table, until};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_conformance::FencedRegister;
use tenure_core::{Error, Locks, Token};
use tokio::task::JoinSet;

const CLIENTS: usize = 3;

/// Clients that add one to a number, each in its turn, as fast as the lock lets them.
pub(crate) struct Turns {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    number: FencedRegister,
    tokens: Mutex<HashSet<Token>>,
    taken: [AtomicU64; CLIENTS],
}

impl Turns {
    pub(crate) async fn begin(table: &Table) -> Self {
        let mut turns = Self { shared: Arc::default(), clients: JoinSet::new() };
        for client in 0..CLIENTS {
            turns.clients.spawn(Arc::clone(&turns.shared).take(client, table.locks().await));
        }
        turns
    }

    /// Everybody has another turn now, no token came twice, and no update was lost.
    pub(crate) async fn go_on(mut self) {
        let taken = || self.shared.taken.each_ref().map(|taken| taken.load(Ordering::Relaxed));
        let before = taken();
        until(async || {
            !self.clients.is_empty() && taken().iter().zip(before).all(|(now, before)| *now > before)
        })
        .await;
        while let Some(ended) = self.clients.try_join_next() {
            ended.expect("one who took turns");
        }
        self.clients.shutdown().await;
        assert_eq!(self.shared.number.lost_updates(), 0);
    }
}

impl Shared {
    async fn take(self: Arc<Self>, client: usize, locks: Locks) {
        loop {
            let guard = locks.lock("turns").lease(Duration::from_secs(2)).wait(LONG).acquire().await.unwrap();
            let token = guard.token();
            assert!(self.tokens.lock().unwrap().insert(token), "token {token} was given twice");
            // A refusal is what the fence is for: somebody came in between.
            if let Ok(value) = self.number.read(token) {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let _refused = self.number.write(token, value + 1);
            }
            match guard.release().await {
                Ok(()) | Err(Error::Lost { .. } | Error::Unavailable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            self.taken[client].fetch_add(1, Ordering::Relaxed);
        }
    }
}
