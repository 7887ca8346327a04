//! How an ensemble is hurt, as a whole or one member of it.

use crate::assembly::Assembly;
use crate::sabotage::NodeSaboteur;
use async_trait::async_trait;
use futures_util::future::join_all;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tenure_conformance::saboteur::{Direction, Hurt, Sabotage, SabotageError, Saboteur};
use tokio::runtime::Handle;

/// Hurts every member that can be hurt so, all at once, or one of them.
#[derive(Debug)]
pub(crate) struct EnsembleSaboteur {
    name: String,
    assembly: Arc<Assembly>,
    members: Vec<NodeSaboteur>,
    runtime: Handle,
}

/// Calls the same method of every member that can.
macro_rules! every {
    ($self:ident, $hurt:ident, $method:ident $(, $argument:expr)*) => {{
        if !$self.can(Hurt::$hurt) {
            return $self.cannot(Hurt::$hurt);
        }
        let able = $self.members.iter().filter(|member| member.can(Hurt::$hurt));
        join_all(able.map(|member| member.$method($($argument),*))).await.into_iter().collect()
    }};
}

/// Calls the same undo of every member.
macro_rules! undo {
    ($self:ident, $method:ident) => {
        join_all($self.members.iter().map(|member| member.$method())).await.into_iter().collect()
    };
}

/// Calls the same method of every member that fits, in the order in which they are started.
macro_rules! begin {
    ($self:ident, $method:ident, $fits:expr) => {{
        let (first, then) = $self.members.split_at($self.assembly.first);
        for phase in [first, then] {
            let begun = join_all(phase.iter().filter($fits).map(|member| member.$method())).await;
            begun.into_iter().collect::<Sabotage>()?;
        }
    }};
}

impl EnsembleSaboteur {
    pub(crate) fn new(name: String, assembly: Arc<Assembly>, runtime: &Handle) -> Self {
        let members = assembly.members.iter();
        let members = members.map(|node| NodeSaboteur::new(Arc::clone(node), runtime.clone())).collect();
        Self { name, assembly, members, runtime: runtime.clone() }
    }

    /// Waits until the members agree again.
    async fn settle(&self) -> Sabotage {
        self.ask("come to agree", |assembly| async move { assembly.settle().await }).await
    }

    /// Asks something of the assembly, on the servers' own runtime.
    async fn ask<T, F>(
        &self,
        what: &'static str,
        ask: impl FnOnce(Arc<Assembly>) -> F,
    ) -> Result<T, SabotageError>
    where
        T: Send + 'static,
        F: Future<Output = io::Result<T>> + Send + 'static,
    {
        let source: Box<dyn std::error::Error + Send + Sync> =
            match self.runtime.spawn(ask(Arc::clone(&self.assembly))).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error.into(),
                Err(ended) => ended.into(),
            };
        Err(SabotageError::Failed { what, server: self.server(), source })
    }
}

#[async_trait]
impl Saboteur for EnsembleSaboteur {
    fn server(&self) -> String {
        self.name.clone()
    }

    fn can(&self, hurt: Hurt) -> bool {
        match hurt {
            Hurt::Partition => self.assembly.links.is_some(),
            Hurt::FreezeOne => self.can(Hurt::Freeze),
            Hurt::KillOne => self.can(Hurt::Kill),
            hurt => self.members.iter().any(|member| member.can(hurt)),
        }
    }

    async fn heal(&self) -> Sabotage {
        self.rejoin().await?;
        begin!(self, heal, |_| true);
        self.settle().await
    }

    async fn last_failover(&self) -> Result<u64, SabotageError> {
        self.ask("tell its last failover", |assembly| async move { assembly.last_failover().await }).await
    }

    async fn freeze(&self) -> Sabotage {
        every!(self, Freeze, freeze)
    }

    async fn thaw(&self) -> Sabotage {
        undo!(self, thaw)
    }

    async fn kill(&self) -> Sabotage {
        every!(self, Kill, kill)
    }

    async fn restart(&self) -> Sabotage {
        if !self.can(Hurt::Kill) {
            return self.cannot(Hurt::Kill);
        }
        begin!(self, restart, |member| member.can(Hurt::Kill));
        self.settle().await
    }

    async fn restart_empty(&self) -> Sabotage {
        // All are gone before the first comes back, or it would be told what there was.
        let killed: Sabotage = every!(self, Wipe, kill);
        killed?;
        begin!(self, restart_empty, |member| member.can(Hurt::Wipe));
        self.settle().await
    }

    async fn cut(&self) -> Sabotage {
        every!(self, Cut, cut)
    }

    async fn refuse(&self) -> Sabotage {
        every!(self, Refuse, refuse)
    }

    async fn delay(&self, direction: Direction, by: Duration) -> Sabotage {
        every!(self, Delay, delay, direction, by)
    }

    async fn drip(&self, pause: Duration) -> Sabotage {
        every!(self, Drip, drip, pause)
    }

    async fn half_open(&self) -> Sabotage {
        every!(self, HalfOpen, half_open)
    }

    async fn drop_requests(&self) -> Sabotage {
        every!(self, DropRequests, drop_requests)
    }

    async fn drop_replies(&self) -> Sabotage {
        every!(self, DropReplies, drop_replies)
    }

    async fn lose_ends(&self) -> Sabotage {
        every!(self, LoseEnds, lose_ends)
    }

    async fn mend(&self) -> Sabotage {
        undo!(self, mend)
    }

    async fn expire_sessions(&self) -> Sabotage {
        every!(self, ExpireSessions, expire_sessions)
    }

    async fn terminate_backends(&self) -> Sabotage {
        every!(self, TerminateBackends, terminate_backends)
    }

    async fn flush_scripts(&self) -> Sabotage {
        every!(self, FlushScripts, flush_scripts)
    }

    async fn pause_writes(&self, at_most: Duration) -> Sabotage {
        every!(self, PauseWrites, pause_writes, at_most)
    }

    async fn resume_writes(&self) -> Sabotage {
        undo!(self, resume_writes)
    }

    async fn make_read_only(&self) -> Sabotage {
        every!(self, ReadOnly, make_read_only)
    }

    async fn make_writable(&self) -> Sabotage {
        undo!(self, make_writable)
    }

    async fn fill_connections(&self) -> Sabotage {
        every!(self, FillConnections, fill_connections)
    }

    async fn free_connections(&self) -> Sabotage {
        undo!(self, free_connections)
    }

    async fn fill_memory(&self) -> Sabotage {
        every!(self, FillMemory, fill_memory)
    }

    async fn free_memory(&self) -> Sabotage {
        undo!(self, free_memory)
    }

    async fn fill_disk(&self) -> Sabotage {
        every!(self, FillDisk, fill_disk)
    }

    async fn free_disk(&self) -> Sabotage {
        undo!(self, free_disk)
    }

    async fn lock_rows(&self) -> Sabotage {
        every!(self, LockRows, lock_rows)
    }

    async fn unlock_rows(&self) -> Sabotage {
        undo!(self, unlock_rows)
    }

    async fn lock_tables(&self) -> Sabotage {
        every!(self, LockTables, lock_tables)
    }

    async fn unlock_tables(&self) -> Sabotage {
        undo!(self, unlock_tables)
    }

    async fn partition(&self, members: &[usize]) -> Sabotage {
        let Some(links) = &self.assembly.links else { return self.cannot(Hurt::Partition) };
        links.partition(members);
        Ok(())
    }

    fn members(&self) -> usize {
        self.members.len()
    }

    async fn freeze_one(&self, member: usize) -> Sabotage {
        match self.members.get(member) {
            Some(member) => member.freeze().await,
            None => self.cannot(Hurt::FreezeOne),
        }
    }

    async fn kill_one(&self, member: usize) -> Sabotage {
        match self.members.get(member) {
            Some(member) => member.kill().await,
            None => self.cannot(Hurt::KillOne),
        }
    }

    async fn rejoin(&self) -> Sabotage {
        let Some(links) = &self.assembly.links else { return Ok(()) };
        links.rejoin().await.map_err(|error| SabotageError::Failed {
            what: "be joined again",
            server: self.server(),
            source: error.into(),
        })
    }
}
