//! The proxy as a saboteur, for a server of which only the connection can be disturbed.

use super::{Flow, Proxy};
use crate::saboteur::{Direction, Hurt, Injection, Sabotage, SabotageError, Saboteur};
use async_trait::async_trait;

#[async_trait]
impl Saboteur for Proxy {
    fn server(&self) -> String {
        format!("the server at {}", self.upstream())
    }

    fn can(&self, hurt: Hurt) -> bool {
        Hurt::NETWORK.contains(&hurt)
    }

    async fn inject(&self, Injection { hurt, by, .. }: Injection) -> Sabotage {
        match hurt {
            Hurt::Cut => self.cut().await,
            Hurt::Refuse => self.refuse().await,
            Hurt::DelayRequests => self.delay(Direction::Requests, by),
            Hurt::DelayReplies => self.delay(Direction::Replies, by),
            Hurt::Drip => self.drip(by),
            Hurt::HalfOpen => self.half_open(),
            Hurt::DropRequests => self.set(Direction::Requests, Flow::Drop),
            Hurt::DropReplies => self.set(Direction::Replies, Flow::Drop),
            hurt => return self.cannot(hurt),
        }
        Ok(())
    }

    async fn undo(&self, hurt: Hurt) -> Sabotage {
        if self.can(hurt) { self.heal().await } else { Ok(()) }
    }

    async fn heal(&self) -> Sabotage {
        self.mend().await.map_err(|error| SabotageError::Failed {
            what: "mend".to_owned(),
            server: self.server(),
            source: error.into(),
        })
    }
}
