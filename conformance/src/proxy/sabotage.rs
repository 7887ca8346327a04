//! The proxy as a saboteur, for a server of which only the connection can be disturbed.

use super::{Flow, Proxy};
use crate::saboteur::{Direction, Hurt, Sabotage, SabotageError, Saboteur};
use async_trait::async_trait;
use std::{io, time::Duration};

impl Proxy {
    fn mended(&self, outcome: io::Result<()>) -> Sabotage {
        let failed = |source: io::Error| SabotageError::Failed {
            what: "be reached again",
            server: self.server(),
            source: source.into(),
        };
        outcome.map_err(failed)
    }
}

#[async_trait]
impl Saboteur for Proxy {
    fn server(&self) -> String {
        format!("the server at {}", self.upstream())
    }

    fn can(&self, hurt: Hurt) -> bool {
        Hurt::NETWORK.contains(&hurt)
    }

    async fn heal(&self) -> Sabotage {
        self.mended(self.mend().await)
    }

    async fn cut(&self) -> Sabotage {
        self.cut().await;
        Ok(())
    }

    async fn refuse(&self) -> Sabotage {
        self.refuse().await;
        Ok(())
    }

    async fn delay(&self, direction: Direction, by: Duration) -> Sabotage {
        self.delay(direction, by);
        Ok(())
    }

    async fn drip(&self, pause: Duration) -> Sabotage {
        self.drip(pause);
        Ok(())
    }

    async fn half_open(&self) -> Sabotage {
        self.half_open();
        Ok(())
    }

    async fn drop_requests(&self) -> Sabotage {
        self.set(Direction::Requests, Flow::Drop);
        Ok(())
    }

    async fn drop_replies(&self) -> Sabotage {
        self.set(Direction::Replies, Flow::Drop);
        Ok(())
    }

    async fn mend(&self) -> Sabotage {
        self.mended(self.mend().await)
    }
}
