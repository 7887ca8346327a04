//! Work that runs while a lock is held, and ends with it (clause L5).

use crate::{
    Check, Need, Stage,
    case::cases,
    check::{
        EXPIRY, ensure, ensure_eq, ensure_matches, eventually, free_at_once, lost_with, rises, still_held,
        within,
    },
    pause,
};
use futures_util::{StreamExt, stream};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tenure_core::{Error, LossCause};

cases!("loss":
    run_cancels_work.policy(), run_returns_value_and_releases.policy(), run_releases_on_panic.policy(),
    run_stream_ends_with_lost.policy(),
);

const PATIENCE: Duration = Duration::from_secs(30);
/// Less than the lease of 30 s, after which a lock that was not released is free.
const SOON: Duration = Duration::from_secs(20);

/// Notes when it is dropped.
struct Alive(Arc<AtomicBool>);

impl Alive {
    fn new() -> (Self, Arc<AtomicBool>) {
        let alive = Arc::new(AtomicBool::new(true));
        (Self(Arc::clone(&alive)), alive)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// The lock is lost during `run`. The work is dropped by the deadline.
async fn run_cancels_work(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    // The work ends at the holder's deadline, 1 % of the lease before the store grants the name again.
    let (lease, [one, other], name) = (Duration::from_secs(6), stage.clients().await?, stage.name("a"));
    let (lock, (sign, alive)) = (one.lock(&name).lease(lease), Alive::new());
    let running = tokio::spawn(async move {
        let work = |hold: tenure_core::Hold| async move {
            let _sign = (sign, hold);
            pending::<()>().await;
        };
        lock.run(work).await
    });
    eventually!(PATIENCE, one.probe.grant(&name).is_some(), "a grant");
    pause::keep(lease / 4).await;
    ensure!(alive.load(Ordering::SeqCst), "the work ended although its lock is held");
    one.probe.freeze();
    let successor = other.lock(&name).wait(PATIENCE).acquire().await?;
    // The hold reported the loss earlier, by 1 % of the lease.
    ensure!(running.is_finished(), "another client holds the lock, so `run` must have ended");
    let outcome = running.await?;
    ensure!(
        !alive.load(Ordering::SeqCst),
        "another client holds the lock, so the work must have been dropped"
    );
    ensure_eq!(lost_with(outcome)?, LossCause::Expired);
    one.probe.thaw();
    still_held(&successor)?;
    successor.release().await?;
    // Dropping the run drops the work, and frees the lock.
    let (lock, (sign, alive)) = (one.lock(&name).wait(PATIENCE), Alive::new());
    let given_up = tokio::time::timeout(
        Duration::from_millis(300),
        lock.run(|_| async move {
            let _sign = sign;
            pending::<()>().await;
        }),
    );
    ensure!(given_up.await.is_err(), "`run` returned although its work never ends");
    ensure!(!alive.load(Ordering::SeqCst), "`run` was dropped, so its work must be dropped too");
    let next = other.lock(&name).wait(SOON).acquire().await?;
    Ok(next.release().await?)
}

/// `run` holds the lock during the work, returns its value, and releases the lock.
async fn run_returns_value_and_releases(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (lock, outside) = (one.lock(&name), other.lock(&name));
    let work = |hold: tenure_core::Hold| {
        let outside = outside.clone();
        async move { (hold.is_held(), hold.token(), outside.try_acquire().await.map(|guard| guard.is_none())) }
    };
    let (held, token, excluded) = lock.run(work).await?;
    ensure!(held && excluded?, "the lock must be held, and exclude other clients, while the work runs");
    let guard = free_at_once(&outside).await?;
    rises(token, guard.token())?;
    let busy = lock.clone().wait(Duration::from_millis(100)).run(|_| async {}).await;
    ensure_matches!(busy, Err(Error::Timeout { .. }));
    Ok(guard.release().await?)
}

/// The work of `run` panics. The lock is released, and the panic goes on.
async fn run_releases_on_panic(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let lock = one.lock(&name);
    let panics = |_| async {
        tokio::task::yield_now().await;
        // Panics without printing.
        std::panic::resume_unwind(Box::new("the work's own"));
    };
    let outcome = tokio::spawn(async move { lock.run(panics).await }).await;
    ensure!(outcome.is_err_and(|end| end.is_panic()), "`run` must pass on the panic of its work");
    let guard = other.lock(&name).wait(SOON).acquire().await?;
    Ok(guard.release().await?)
}

/// The lock is lost during `run_stream`. The stream ends with `Err(Lost)`, and its work is dropped.
async fn run_stream_ends_with_lost(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let (lease, [one, other], name) = (Duration::from_secs(3), stage.clients().await?, stage.name("a"));
    // First, work that ends by itself.
    let feed = one.lock(&name).run_stream(|_| stream::iter([1, 2, 3])).await?;
    let items: Vec<_> = within(PATIENCE, "a stream of three", feed.collect()).await?;
    let items: Result<Vec<i32>, Error> = items.into_iter().collect();
    ensure_eq!(items?, [1, 2, 3]);
    free_at_once(&other.lock(&name)).await?.release().await?;
    // Then, work without end, whose lock is lost.
    let (sign, alive) = Alive::new();
    let endless = move |_| {
        stream::unfold(sign, |sign| async {
            pause::settle(Duration::from_millis(20)).await;
            Some(((), sign))
        })
    };
    let lock = one.lock(&name).lease(lease);
    let mut feed = Box::pin(lock.run_stream(endless).await?);
    one.probe.freeze();
    let last = async {
        loop {
            match feed.next().await {
                Some(Ok(())) => {}
                last => return last,
            }
        }
    };
    let last = within(lease, "the end of a stream whose lock is lost", last).await?;
    ensure_matches!(last, Some(Err(Error::Lost { cause: LossCause::Expired, .. })));
    ensure!(
        !alive.load(Ordering::SeqCst),
        "the stream reported the loss, so its work must have been dropped"
    );
    ensure!(feed.next().await.is_none(), "the stream must end after the error");
    one.probe.thaw();
    let guard = other.lock(&name).wait(lease + EXPIRY).acquire().await?;
    Ok(guard.release().await?)
}
