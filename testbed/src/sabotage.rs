//! How servers that were found or started are hurt: one of them, or several that are one to their clients.

mod orders;

use crate::admin::Order;
use crate::assembly::Assembly;
use crate::node::Node;
use async_trait::async_trait;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use tenure_conformance::saboteur::{Hurt, Injection, Sabotage, SabotageError, Saboteur};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Hurts every member that can be hurt so, all at once, or one of them. Its work is done on the servers' own runtime, so
/// it does not end half-way when a test's runtime does.
pub(crate) struct MembersSaboteur {
    name: String,
    assembly: Arc<Assembly>,
    runtime: Handle,
}

impl fmt::Debug for MembersSaboteur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Saboteur").field(&self.name).finish()
    }
}

impl MembersSaboteur {
    pub(crate) fn new(name: String, assembly: Arc<Assembly>, runtime: &Handle) -> Self {
        Self { name, assembly, runtime: runtime.clone() }
    }

    /// Gives the order to those who can be hurt so.
    async fn tell_able(&self, hurt: Hurt, order: Order) -> Sabotage {
        let able = able(&self.assembly.members, hurt);
        if able.is_empty() { self.cannot(hurt) } else { self.tell(able, order).await }
    }

    /// Does `of_it` to the member, where there are others.
    async fn inject_in_one(&self, Injection { hurt, member, .. }: Injection, of_it: Hurt) -> Sabotage {
        match self.assembly.members.get(member) {
            Some(node) if self.can(hurt) => {
                self.tell(vec![Arc::clone(node)], Order::Inject(of_it.into())).await
            }
            _ => self.cannot(hurt),
        }
    }

    async fn restart_each(&self) -> Sabotage {
        for node in able(&self.assembly.members, Hurt::Kill) {
            self.begin([vec![node], Vec::new()], Order::Restart { empty: false }).await?;
        }
        Ok(())
    }

    /// Gives these members an order, all at once, and waits until each has carried it out.
    async fn tell(&self, members: Vec<Arc<Node>>, order: Order) -> Sabotage {
        let begun: Vec<_> = members
            .into_iter()
            .map(|node| {
                let server = node.to_string();
                let work = async move {
                    let mut state = node.state.lock().await;
                    orders::carry_out(order, &node, &mut state).await
                };
                (server, self.runtime.spawn(work))
            })
            .collect();
        let mut outcome = Ok(());
        for (server, work) in begun {
            let done = finished(server, &order.to_string(), work).await;
            outcome = outcome.and(done);
        }
        outcome
    }

    /// Gives these members an order in the phases in which they are started, and waits until all agree.
    async fn begin(&self, [first, then]: [Vec<Arc<Node>>; 2], order: Order) -> Sabotage {
        self.tell(first, order).await?;
        self.tell(then, order).await?;
        let assembly = Arc::clone(&self.assembly);
        let settling = self.runtime.spawn(async move { assembly.settle().await });
        finished(self.server(), "the wait until the members agree", settling).await
    }

    /// The members that are there before the others are started, and those.
    fn phases(&self) -> [&[Arc<Node>]; 2] {
        let (first, then) = self.assembly.members.split_at(self.assembly.first);
        [first, then]
    }

    /// Restarts those who can be hurt so.
    async fn start_again(&self, hurt: Hurt, empty: bool) -> Sabotage {
        self.begin(self.phases().map(|members| able(members, hurt)), Order::Restart { empty }).await
    }
}

/// Those of these members that can be hurt so.
fn able(members: &[Arc<Node>], hurt: Hurt) -> Vec<Arc<Node>> {
    members.iter().filter(|node| node.can(hurt)).cloned().collect()
}

/// Waits for work that goes on even if this does not.
async fn finished<T>(
    server: String,
    what: &str,
    work: JoinHandle<io::Result<T>>,
) -> Result<T, SabotageError> {
    let source: Box<dyn Error + Send + Sync> = match work.await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error.into(),
        Err(ended) => ended.into(),
    };
    Err(SabotageError::Failed { what: what.to_owned(), server, source })
}

#[async_trait]
impl Saboteur for MembersSaboteur {
    fn server(&self) -> String {
        self.name.clone()
    }

    fn can(&self, hurt: Hurt) -> bool {
        let members = &self.assembly.members;
        match hurt {
            Hurt::Partition | Hurt::Mute => self.assembly.links.is_some(),
            Hurt::HideOne => members.len() > 1 && self.can(Hurt::HalfOpen),
            Hurt::FreezeOne => members.len() > 1 && self.can(Hurt::Freeze),
            Hurt::KillOne | Hurt::RestartEach => members.len() > 1 && self.can(Hurt::Kill),
            hurt => members.iter().any(|node| node.can(hurt)),
        }
    }

    async fn inject(&self, injection: Injection) -> Sabotage {
        match injection.hurt {
            hurt if !self.can(hurt) => self.cannot(hurt),
            Hurt::FreezeOne => self.inject_in_one(injection, Hurt::Freeze).await,
            Hurt::KillOne => self.inject_in_one(injection, Hurt::Kill).await,
            Hurt::HideOne => self.inject_in_one(injection, Hurt::HalfOpen).await,
            Hurt::RestartEach => self.restart_each().await,
            hurt @ (Hurt::Partition | Hurt::Mute) => {
                if let Some(links) = &self.assembly.links {
                    links.partition(injection.member, hurt == Hurt::Mute);
                }
                Ok(())
            }
            Hurt::Wipe => {
                // All are gone before the first comes back, or it would be told what there was.
                self.tell_able(Hurt::Wipe, Order::Inject(Hurt::Kill.into())).await?;
                self.start_again(Hurt::Wipe, true).await
            }
            hurt => self.tell_able(hurt, Order::Inject(injection)).await,
        }
    }

    async fn undo(&self, hurt: Hurt) -> Sabotage {
        let all = || self.assembly.members.clone();
        match hurt {
            Hurt::Partition | Hurt::Mute => match &self.assembly.links {
                Some(links) => links.rejoin().await.map_err(|error| SabotageError::Failed {
                    what: "the end of the partition".to_owned(),
                    server: self.server(),
                    source: error.into(),
                }),
                None => Ok(()),
            },
            Hurt::Kill | Hurt::KillOne => {
                self.begin(self.phases().map(<[_]>::to_vec), Order::Undo(Hurt::Kill)).await
            }
            Hurt::FreezeOne => self.tell(all(), Order::Undo(Hurt::Freeze)).await,
            Hurt::HideOne => self.tell(all(), Order::Undo(Hurt::HalfOpen)).await,
            hurt => self.tell(all(), Order::Undo(hurt)).await,
        }
    }

    async fn heal(&self) -> Sabotage {
        self.undo(Hurt::Partition).await?;
        self.begin(self.phases().map(<[_]>::to_vec), Order::Heal).await
    }

    async fn restart(&self) -> Sabotage {
        if self.can(Hurt::Kill) { self.start_again(Hurt::Kill, false).await } else { self.cannot(Hurt::Kill) }
    }

    async fn last_failover(&self) -> Result<u64, SabotageError> {
        let assembly = Arc::clone(&self.assembly);
        let telling = self.runtime.spawn(async move { assembly.last_failover().await });
        finished(self.server(), "the question for its last failover", telling).await
    }

    fn members(&self) -> usize {
        self.assembly.members.len()
    }
}
