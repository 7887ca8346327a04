//! How a server that was found or started is hurt.

mod undo;

use crate::admin::Order;
use crate::node::{Node, State};
use crate::way::Way;
use async_trait::async_trait;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_conformance::proxy::{Flow, Proxy};
use tenure_conformance::saboteur::{Direction, Hurt, Sabotage, SabotageError, Saboteur};
use tokio::runtime::Handle;
use undo::{free_memory, make_writable, restart, resume_writes, thaw};

/// Hurts one node. Its work is done on the server's own runtime, so it does not end half-way when a test's runtime does.
pub(crate) struct NodeSaboteur {
    node: Arc<Node>,
    runtime: Handle,
}

impl fmt::Debug for NodeSaboteur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Saboteur").field(&self.server()).finish()
    }
}

type Work<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

impl NodeSaboteur {
    pub(crate) fn new(node: Arc<Node>, runtime: Handle) -> Self {
        Self { node, runtime }
    }

    fn is_ours(&self) -> bool {
        !matches!(self.node.way, Way::Environment { .. })
    }

    /// Does the work when the server can be hurt so, alone with the server's state.
    async fn hurt<F>(&self, hurt: Hurt, work: F) -> Sabotage
    where
        F: for<'a> FnOnce(&'a Node, &'a mut State) -> Work<'a> + Send + 'static,
    {
        if self.can(hurt) { self.work(what(hurt), work).await } else { self.cannot(hurt) }
    }

    async fn work<F>(&self, what: &'static str, work: F) -> Sabotage
    where
        F: for<'a> FnOnce(&'a Node, &'a mut State) -> Work<'a> + Send + 'static,
    {
        let node = Arc::clone(&self.node);
        let done = self.runtime.spawn(async move {
            let mut state = node.state.lock().await;
            work(&node, &mut state).await
        });
        let source: Box<dyn std::error::Error + Send + Sync> = match done.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.into(),
            Err(ended) => ended.into(),
        };
        Err(SabotageError::Failed { what, server: self.server(), source })
    }

    async fn order(&self, hurt: Hurt, order: Order) -> Sabotage {
        self.hurt(hurt, move |node, state| Box::pin(async move { node.order(state, order).await })).await
    }

    async fn proxied<F>(&self, hurt: Hurt, work: F) -> Sabotage
    where
        F: for<'a> FnOnce(&'a Proxy) -> Work<'a> + Send + 'static,
    {
        self.hurt(hurt, move |node, _| {
            Box::pin(async move {
                match &node.proxy {
                    Some(proxy) => work(proxy).await,
                    None => Ok(()),
                }
            })
        })
        .await
    }
}

#[async_trait]
impl Saboteur for NodeSaboteur {
    fn server(&self) -> String {
        format!("{} ({})", self.node.name, self.node.way)
    }

    fn can(&self, hurt: Hurt) -> bool {
        match hurt {
            Hurt::Freeze | Hurt::Kill => self.is_ours(),
            Hurt::Wipe => self.is_ours() && self.node.recipe().may_wipe(),
            hurt if Hurt::NETWORK.contains(&hurt) => self.node.proxy.is_some(),
            Hurt::LoseEnds => self.node.proxy.is_some() && !self.node.recipe().ends().is_empty(),
            hurt => self.node.recipe().hurts(&self.node.way).contains(&hurt),
        }
    }

    async fn heal(&self) -> Sabotage {
        self.work("heal", |node, state| {
            Box::pin(async move {
                if state.hurts.contains(&Hurt::Kill) {
                    restart(node, state, false).await?;
                }
                thaw(state).await?;
                for held in [Hurt::FillDisk, Hurt::LockRows, Hurt::LockTables, Hurt::FillConnections] {
                    node.free(state, held).await?;
                }
                free_memory(node, state).await?;
                resume_writes(node, state).await?;
                make_writable(node, state).await?;
                if let Some(proxy) = &node.proxy {
                    proxy.mend().await?;
                }
                node.ready(state).await
            })
        })
        .await
    }

    async fn freeze(&self) -> Sabotage {
        self.hurt(Hurt::Freeze, |_, state| {
            Box::pin(async move {
                if !state.hurts.contains(&Hurt::Freeze) && !state.hurts.contains(&Hurt::Kill) {
                    state.engine()?.freeze().await?;
                    state.hurts.insert(Hurt::Freeze);
                }
                Ok(())
            })
        })
        .await
    }

    async fn thaw(&self) -> Sabotage {
        self.work("thaw", |_, state| Box::pin(thaw(state))).await
    }

    async fn kill(&self) -> Sabotage {
        self.hurt(Hurt::Kill, |node, state| {
            Box::pin(async move {
                // First the port, so that nobody is accepted on the dead server's behalf.
                if let Some(proxy) = &node.proxy {
                    proxy.refuse().await;
                }
                state.engine_mut()?.kill().await?;
                state.hurts.insert(Hurt::Kill);
                state.hurts.remove(&Hurt::Freeze);
                if let Some(proxy) = &node.proxy {
                    proxy.cut().await;
                }
                Ok(())
            })
        })
        .await
    }

    async fn restart(&self) -> Sabotage {
        self.hurt(Hurt::Kill, |node, state| Box::pin(restart(node, state, false))).await
    }

    async fn restart_empty(&self) -> Sabotage {
        self.hurt(Hurt::Wipe, |node, state| Box::pin(restart(node, state, true))).await
    }

    async fn cut(&self) -> Sabotage {
        self.proxied(Hurt::Cut, |proxy| {
            Box::pin(async move {
                proxy.cut().await;
                Ok(())
            })
        })
        .await
    }

    async fn refuse(&self) -> Sabotage {
        self.proxied(Hurt::Refuse, |proxy| {
            Box::pin(async move {
                proxy.refuse().await;
                Ok(())
            })
        })
        .await
    }

    async fn delay(&self, direction: Direction, by: Duration) -> Sabotage {
        self.proxied(Hurt::Delay, move |proxy| {
            Box::pin(async move {
                proxy.delay(direction, by);
                Ok(())
            })
        })
        .await
    }

    async fn drip(&self, pause: Duration) -> Sabotage {
        self.proxied(Hurt::Drip, move |proxy| {
            Box::pin(async move {
                proxy.drip(pause);
                Ok(())
            })
        })
        .await
    }

    async fn half_open(&self) -> Sabotage {
        self.proxied(Hurt::HalfOpen, |proxy| {
            Box::pin(async move {
                proxy.half_open();
                Ok(())
            })
        })
        .await
    }

    async fn drop_requests(&self) -> Sabotage {
        self.proxied(Hurt::DropRequests, |proxy| {
            Box::pin(async move {
                proxy.set(Direction::Requests, Flow::Drop);
                Ok(())
            })
        })
        .await
    }

    async fn drop_replies(&self) -> Sabotage {
        self.proxied(Hurt::DropReplies, |proxy| {
            Box::pin(async move {
                proxy.set(Direction::Replies, Flow::Drop);
                Ok(())
            })
        })
        .await
    }

    async fn lose_ends(&self) -> Sabotage {
        let ends = self.node.recipe().ends();
        self.proxied(Hurt::LoseEnds, move |proxy| {
            Box::pin(async move {
                proxy.set(Direction::Requests, Flow::StopAt(ends));
                Ok(())
            })
        })
        .await
    }

    async fn mend(&self) -> Sabotage {
        self.work("mend its network", |node, state| {
            Box::pin(async move {
                match &node.proxy {
                    // A killed server goes on refusing.
                    Some(proxy) if !state.hurts.contains(&Hurt::Kill) => proxy.mend().await,
                    _ => Ok(()),
                }
            })
        })
        .await
    }

    async fn expire_sessions(&self) -> Sabotage {
        self.order(Hurt::ExpireSessions, Order::ExpireSessions).await
    }

    async fn terminate_backends(&self) -> Sabotage {
        self.order(Hurt::TerminateBackends, Order::TerminateBackends).await
    }

    async fn flush_scripts(&self) -> Sabotage {
        self.order(Hurt::FlushScripts, Order::FlushScripts).await
    }

    async fn pause_writes(&self, at_most: Duration) -> Sabotage {
        self.hurt(Hurt::PauseWrites, move |node, state| {
            Box::pin(async move {
                state.hurts.insert(Hurt::PauseWrites);
                node.order(state, Order::PauseWrites(at_most)).await
            })
        })
        .await
    }

    async fn resume_writes(&self) -> Sabotage {
        self.work("resume writes", |node, state| Box::pin(resume_writes(node, state))).await
    }

    async fn make_read_only(&self) -> Sabotage {
        self.hurt(Hurt::ReadOnly, |node, state| {
            Box::pin(async move {
                state.hurts.insert(Hurt::ReadOnly);
                node.order(state, Order::MakeReadOnly).await
            })
        })
        .await
    }

    async fn make_writable(&self) -> Sabotage {
        self.work("become writable", |node, state| Box::pin(make_writable(node, state))).await
    }

    async fn fill_connections(&self) -> Sabotage {
        self.hurt(Hurt::FillConnections, |node, state| Box::pin(node.take(state, Hurt::FillConnections)))
            .await
    }

    async fn free_connections(&self) -> Sabotage {
        self.work("free its connections", |node, state| Box::pin(node.free(state, Hurt::FillConnections)))
            .await
    }

    async fn fill_memory(&self) -> Sabotage {
        self.hurt(Hurt::FillMemory, |node, state| {
            Box::pin(async move {
                state.hurts.insert(Hurt::FillMemory);
                node.order(state, Order::FillMemory).await
            })
        })
        .await
    }

    async fn free_memory(&self) -> Sabotage {
        self.work("free its memory", |node, state| Box::pin(free_memory(node, state))).await
    }

    async fn fill_disk(&self) -> Sabotage {
        self.hurt(Hurt::FillDisk, |node, state| Box::pin(node.take(state, Hurt::FillDisk))).await
    }

    async fn free_disk(&self) -> Sabotage {
        self.work("make room on its disk", |node, state| Box::pin(node.free(state, Hurt::FillDisk))).await
    }

    async fn lock_rows(&self) -> Sabotage {
        self.hurt(Hurt::LockRows, |node, state| Box::pin(node.take(state, Hurt::LockRows))).await
    }

    async fn unlock_rows(&self) -> Sabotage {
        self.work("unlock its rows", |node, state| Box::pin(node.free(state, Hurt::LockRows))).await
    }

    async fn lock_tables(&self) -> Sabotage {
        self.hurt(Hurt::LockTables, |node, state| Box::pin(node.take(state, Hurt::LockTables))).await
    }

    async fn unlock_tables(&self) -> Sabotage {
        self.work("unlock its tables", |node, state| Box::pin(node.free(state, Hurt::LockTables))).await
    }
}

fn what(hurt: Hurt) -> &'static str {
    match hurt {
        Hurt::Freeze => "freeze",
        Hurt::Kill => "be killed or restarted",
        Hurt::Wipe => "restart empty",
        hurt if Hurt::NETWORK.contains(&hurt) || hurt == Hurt::LoseEnds => "lose its network",
        Hurt::ExpireSessions => Order::ExpireSessions.what(),
        Hurt::TerminateBackends => Order::TerminateBackends.what(),
        Hurt::FlushScripts => Order::FlushScripts.what(),
        Hurt::PauseWrites => "pause writes",
        Hurt::ReadOnly => Order::MakeReadOnly.what(),
        Hurt::FillConnections => "fill up its connections",
        Hurt::FillMemory => Order::FillMemory.what(),
        Hurt::FillDisk => "fill up its disk",
        Hurt::LockRows => "lock its rows",
        Hurt::LockTables => "lock its tables",
        Hurt::Partition => "be partitioned",
        Hurt::FreezeOne => "have one member frozen",
        Hurt::KillOne => "have one member killed",
        // A hurt that the suite has learnt since.
        _ => "be hurt",
    }
}
