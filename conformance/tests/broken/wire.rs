//! The network between a broken store and its clients, within one process.

use std::{future::pending, time::Duration};
use tenure_conformance::{
    async_trait,
    saboteur::{Hurt, Injection, Sabotage, Saboteur},
};
use tenure_core::StoreError;
use tokio::sync::watch;

/// How long a client waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The present fate of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Fine,
    /// Answers take so long.
    Slow(Duration),
    /// Answers are lost.
    Deaf,
    /// Requests do not arrive.
    Silent,
    /// Connections are refused.
    Closed,
}

/// A way to a store that can be slow, lose answers, or carry nothing.
#[derive(Debug)]
pub(crate) struct Wire(watch::Sender<Weather>);

impl Wire {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Weather::Fine))
    }

    /// Carries a request there and its answer back.
    pub(crate) async fn carry<T>(&self, request: impl Future<Output = T>) -> Result<T, StoreError> {
        let answered = tokio::time::timeout(TIMEOUT, self.carry_without_timeout(request)).await;
        answered.unwrap_or_else(|_| Err(StoreError::unavailable("no answer over the wire")))
    }

    /// Does so without a timeout.
    pub(crate) async fn carry_without_timeout<T>(
        &self,
        request: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let mut weather = self.0.subscribe();
        // The sender is in `self`, so the channel cannot close.
        let _ = weather.wait_for(|weather| *weather != Weather::Silent).await;
        if *weather.borrow() == Weather::Closed {
            return Err(StoreError::unavailable("the connection was refused"));
        }
        let answer = request.await;
        let now = *weather.borrow_and_update();
        match now {
            Weather::Fine | Weather::Closed => {}
            Weather::Slow(by) => tokio::time::sleep(by).await,
            Weather::Deaf | Weather::Silent => pending().await,
        }
        Ok(answer)
    }
}

#[async_trait]
impl Saboteur for Wire {
    fn server(&self) -> String {
        "a broken store".to_owned()
    }

    fn can(&self, hurt: Hurt) -> bool {
        matches!(hurt, Hurt::Cut | Hurt::Refuse | Hurt::DelayReplies | Hurt::DropReplies | Hurt::HalfOpen)
    }

    async fn inject(&self, Injection { hurt, by, .. }: Injection) -> Sabotage {
        self.0.send_replace(match hurt {
            Hurt::Refuse => Weather::Closed,
            Hurt::DelayReplies => Weather::Slow(by),
            Hurt::DropReplies => Weather::Deaf,
            Hurt::HalfOpen => Weather::Silent,
            // Each request makes a connection of its own.
            Hurt::Cut => return Ok(()),
            hurt => return self.cannot(hurt),
        });
        Ok(())
    }

    async fn undo(&self, _: Hurt) -> Sabotage {
        self.heal().await
    }

    async fn heal(&self) -> Sabotage {
        self.0.send_replace(Weather::Fine);
        Ok(())
    }
}
