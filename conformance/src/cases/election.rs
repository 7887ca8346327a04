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
    election_one_leader.policy(), election_new_leader_after_kill, leaders_reports_each_change.policy(),
    work_ends_with_its_term.policy(),
);

const PATIENCE: Duration = Duration::from_secs(30);
/// Less than the lease of 30 s, after which the place of a leader that did not resign is free.
const SOON: Duration = Duration::from_secs(20);

/// Three candidates lead in turn. There is one leader at a time, and terms have rising tokens.
async fn election_one_leader(stage: &Stage) -> Check {
    let (clients, name) = (stage.clients::<3>().await?, stage.name("a"));
    let leading = Arc::new(AtomicUsize::new(0));
    let (terms, mut told) = mpsc::unbounded_channel();
    let mut candidates = tokio::task::JoinSet::new();
    for client in &clients {
        let (election, leading, terms) = (client.election(&name), Arc::clone(&leading), terms.clone());
        candidates.spawn(async move {
            for _ in 0..3 {
                let term =
                    within(SOON, "one of nine terms of three candidates", election.campaign()).await??;
                ensure_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "leaders beside a new one");
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

/// The leader's process is killed. Another candidate is elected, with a greater token.
async fn election_new_leader_after_kill(stage: &Stage) -> Check {
    stage.needs(Need::Processes)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let mut victim = stage.victim().await?;
    let first = victim.hold(&name, Duration::from_secs(3)).await?;
    let election = client.election(&name);
    let mut campaign = pin!(election.campaign());
    ensure!(
        campaign.as_mut().now_or_never().is_none(),
        "a second candidate was elected while another process leads"
    );
    victim.kill().await?;
    let term = within(PATIENCE, "a new leader after the old one was killed", campaign).await??;
    rises(first, term.token())?;
    Ok(term.release().await?)
}

/// `leaders` reports each new leader with its label, and each resignation.
async fn leaders_reports_each_change(stage: &Stage) -> Check {
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let watched = other.election(&name);
    let mut leaders = pin!(watched.leaders(Duration::from_millis(20)));
    let mut next = async || match within(PATIENCE, "a change that `leaders` reports", leaders.next()).await? {
        Some(leader) => Ok(leader?.and_then(|leader| leader.info.label)),
        None => Err(Stop::failed("`leaders` ended while its client is open")),
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

/// A forced release ends a term. `run_while_leading` drops the work and runs it again in the next term.
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
            // Another client ends the first term.
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
        within(PATIENCE, "two terms, the first of which ends by a forced release,", async {
            tokio::join!(leading.as_mut(), forced)
        })
        .await?;
    let first = forced?.into_iter().find_map(|holder| holder.token);
    rises(first, token?)?;
    ensure_eq!(terms.load(Ordering::SeqCst), 2, "terms");
    ensure_eq!(running.load(Ordering::SeqCst), 0, "works that still run after their terms");
    let free = other.lock(&name).wait(PATIENCE).acquire().await?;
    Ok(free.release().await?)
}

/// Counts one more inside, as long as it lives.
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
