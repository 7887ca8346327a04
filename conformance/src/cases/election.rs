//! One leader among many candidates (clause E1).

use crate::{
    Check, Need, Stage,
    case::cases,
    check::{Stop, ensure_eq, rises, within},
    pause,
};
use futures_util::StreamExt;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

cases!("election":
    leaders_reports_each_change.policy(), work_ends_with_its_term.policy(),
);

const PATIENCE: Duration = Duration::from_secs(30);

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
