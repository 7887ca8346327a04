//! One leader among many candidates.

use crate::{
    Check, Need, Stage,
    case::cases,
    check::{Stop, ensure, ensure_eq, rises, within},
    pause,
};
use futures_util::{FutureExt, StreamExt};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;

cases!("election":
    election_one_leader.policy(), election_new_leader_after_kill, leader_is_told.policy(), work_ends_with_its_term.policy(),
);

const PATIENCE: Duration = Duration::from_secs(30);
/// Less than the lease of 30 s, after which the place of a leader who did not resign is free.
const SOON: Duration = Duration::from_secs(20);

async fn election_one_leader(stage: &Stage) -> Check {
    let (clients, name) = (stage.clients::<3>().await?, stage.name("a"));
    let leading = Arc::new(AtomicUsize::new(0));
    let (terms, mut told) = mpsc::unbounded_channel();
    let mut candidates = tokio::task::JoinSet::new();
    for client in &clients {
        let (election, leading, terms) = (client.election(&name), Arc::clone(&leading), terms.clone());
        candidates.spawn(async move {
            for _ in 0..3 {
                let term = within(SOON, "a term of nine", election.campaign()).await??;
                ensure_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "other leaders");
                let _ = terms.send(term.token());
                pause::settle(Duration::from_millis(5)).await;
                leading.fetch_sub(1, Ordering::SeqCst);
                term.release().await?;
            }
            Check::Ok(())
        });
    }
    while let Some(outcome) = candidates.join_next().await {
        outcome??;
    }
    drop(terms);
    let mut last = None;
    while let Some(term) = told.recv().await {
        rises(last, term)?;
        last = Some(term);
    }
    Ok(())
}

async fn election_new_leader_after_kill(stage: &Stage) -> Check {
    stage.needs(Need::Processes)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let mut victim = stage.victim().await?;
    let first = victim.hold(&name, Duration::from_secs(3)).await?;
    let election = client.election(&name);
    let mut campaign = pin!(election.campaign());
    ensure!(campaign.as_mut().now_or_never().is_none(), "there are two leaders");
    victim.kill().await?;
    let term = within(PATIENCE, "a new leader after the old one was killed", campaign).await??;
    rises(first, term.token())?;
    Ok(term.release().await?)
}

async fn leader_is_told(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let watched = other.election(&name);
    let mut leaders = pin!(watched.leaders(Duration::from_millis(20)));
    let mut next = async || match within(PATIENCE, "news of the leader", leaders.next()).await? {
        Some(leader) => Ok(leader?.and_then(|leader| leader.info.label)),
        None => Err(Stop::failed("no more leaders are told")),
    };
    ensure_eq!(next().await?, None, "the leader before there is one");
    for label in ["node 1", "node 2"] {
        let term = one.election(&name).with(|lock| lock.label(label)).campaign().await?;
        ensure_eq!(next().await?.as_deref(), Some(label), "the leader");
        term.release().await?;
        ensure_eq!(next().await?, None, "the leader after it has resigned");
    }
    Ok(())
}

async fn work_ends_with_its_term(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let election = one.election(&name).with(|lock| lock.lease(Duration::from_secs(6)));
    let (running, terms) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut leading = pin!(election.run_while_leading(|term| {
        let inside = Inside::enter(&running);
        let number = terms.fetch_add(1, Ordering::SeqCst);
        async move {
            let _inside = inside;
            // The first term is ended by others.
            if number == 0 {
                std::future::pending::<()>().await;
            }
            term.token()
        }
    }));
    let forced = async {
        while terms.load(Ordering::SeqCst) == 0 || other.holders(&name).await?.is_empty() {
            pause::look_again().await;
        }
        Check::Ok(other.force_release(&name).await?)
    };
    let (token, forced) =
        within(PATIENCE, "two terms", async { tokio::join!(leading.as_mut(), forced) }).await?;
    let first = forced?.into_iter().find_map(|holder| holder.token);
    rises(first, token?)?;
    ensure_eq!(terms.load(Ordering::SeqCst), 2);
    ensure_eq!(running.load(Ordering::SeqCst), 0);
    let free = other.lock(&name).wait(PATIENCE).acquire().await?;
    Ok(free.release().await?)
}

/// Counts who is inside, as long as it lives.
struct Inside(Arc<AtomicUsize>);

impl Inside {
    fn enter(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
