//! A waiter beside clients that relock in a loop (clause W5).

use crate::{
    Check, Client, Form, Method, Stage,
    check::{Stop, eventually},
    pause,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinSet;

/// For waits that end by themselves when all is well, also on a slow store.
const PATIENCE: Duration = Duration::from_secs(80);

/// Clients that relock in a loop do not starve a waiter.
pub(super) async fn barging_bounded(stage: &Stage) -> Check {
    others_get_in(stage, Form::Lock, 2).await?;
    // A server may count two clients that share a connection as one.
    let relocker = stage.client().await?;
    gets_in(&stage.client_beside(&relocker), &[relocker], &stage.name("b"), Form::Lock, 2).await
}

/// A client gets in while two others relock in a loop, with this many tasks each.
pub(in crate::cases) async fn others_get_in(stage: &Stage, form: Form, tasks_each: usize) -> Check {
    let [waiter, one, other] = stage.clients().await?;
    gets_in(&waiter, &[one, other], &stage.name("a"), form, tasks_each).await
}

async fn gets_in(waiter: &Client, relockers: &[Client], name: &str, form: Form, tasks_each: usize) -> Check {
    // Each wait may take so long and so many turns of the others: on a slow store, few turns take long.
    const LONG: Duration = Duration::from_secs(10);
    const TURNS: usize = 100;
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for client in relockers.iter().cycle().take(relockers.len() * tasks_each) {
        let (lock, over) = (form.of(client, name).wait(PATIENCE), Arc::clone(&over));
        tasks.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let guard = lock.acquire().await?;
                // Much longer than the name is free: a client that only polls now and then never finds it free.
                pause::settle(Duration::from_millis(2)).await;
                guard.release().await?;
            }
            Check::Ok(())
        });
    }
    let relocked = || relockers.iter().map(|client| client.probe.count(Method::Release, name)).sum::<usize>();
    eventually!(PATIENCE, relocked() >= 20, "20 turns of clients that relock in a loop");
    let mut outcome = Ok(());
    for _ in 0..3 {
        let (lock, before) = (form.of(waiter, name), relocked());
        let starved = async {
            pause::outlast(LONG).await;
            let turns = async {
                while relocked() < before + TURNS {
                    pause::look_again().await;
                }
            };
            // With a limit, in case they do not get in either.
            let _ = tokio::time::timeout(PATIENCE, turns).await;
        };
        outcome = tokio::select! {
            biased;
            guard = lock.acquire() => guard?.release().await.map_err(Stop::from),
            () = starved => Err(Stop::failed(format_args!(
                "clients that relock in a loop starve a waiter: it was not granted the lock for {LONG:?} and {} of their turns",
                relocked() - before
            ))),
        };
        if outcome.is_err() {
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    outcome
}
