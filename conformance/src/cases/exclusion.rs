//! Exclusion: at most one holder at a time (clauses X1 to X3).

use crate::{
    Check, Client, Method, Need, Stage,
    case::cases,
    check::{Stop, ensure, ensure_eq, ensure_matches, free_at_once, kept_out, still_held},
};
use futures_util::future::try_join_all;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::{Error, Moment};
use tokio::task::JoinSet;

cases!("exclusion":
    namespaces_never_meet, two_clients_exclude.shared(), hundred_tasks_exclude.shared(), cross_process,
    held_lock_refuses_thousands_of_tries.shared(),
);

/// Long enough for a hundred handovers on a slow store; no case in this group waits this long unless something fails.
const PATIENCE: Duration = Duration::from_mins(4);

/// Two clients in different namespaces hold one name at once. In each namespace it excludes.
async fn namespaces_never_meet(stage: &Stage) -> Check {
    let name = stage.name("a");
    let (here, there, there_too) =
        (stage.client().await?, stage.client_in("elsewhere").await?, stage.client_in("elsewhere").await?);
    let mine = here.lock(&name).acquire().await?;
    let theirs = free_at_once(&there.lock(&name)).await?;
    kept_out(&there_too.lock(&name)).await?;
    theirs.release().await?;
    kept_out(&here.lock(&name)).await?;
    still_held(&mine)?;
    Ok(mine.release().await?)
}

/// While one client holds a lock, another's try and wait are refused.
async fn two_clients_exclude(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    for (holder, outsider) in [(&one, &other), (&other, &one)] {
        let guard = holder.lock(&name).wait(PATIENCE).acquire().await?;
        kept_out(&outsider.lock(&name)).await?;
        let waited = outsider.lock(&name).wait(Duration::from_millis(200)).acquire().await;
        ensure!(waited.is_err(), "granted while another client holds it: {waited:?}");
        still_held(&guard)?;
        guard.release().await?;
    }
    Ok(())
}

/// A hundred tasks of four clients acquire one lock. Each is alone while it holds it.
async fn hundred_tasks_exclude(stage: &Stage) -> Check {
    let (clients, name, inside) =
        (stage.clients::<4>().await?, stage.name("a"), Arc::<AtomicUsize>::default());
    let mut tasks = JoinSet::new();
    for client in clients.iter().cycle().take(100) {
        let (lock, inside) = (client.lock(&name).wait(PATIENCE), Arc::clone(&inside));
        tasks.spawn(async move {
            let guard = lock.acquire().await?;
            let before = inside.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let beside = inside.fetch_sub(1, Ordering::SeqCst);
            ensure_eq!((before, beside), (0, 1), "holders when this one entered, and when it left");
            Check::Ok(guard.release().await?)
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    Ok(())
}

/// Three processes write lines in pairs under one lock. No other line comes between a pair.
async fn cross_process(stage: &Stage) -> Check {
    const ROUNDS: usize = 20;
    stage.needs(Need::Processes)?;
    let (name, file) = (stage.name("a"), tempfile::NamedTempFile::new()?);
    let path = file.path().to_str().ok_or_else(|| Stop::failed("a temporary file with an odd name"))?;
    let mut victims = [stage.victim().await?, stage.victim().await?, stage.victim().await?];
    let [one, two, three] = &mut victims;
    let (one, two, three) = tokio::join!(
        one.append(&name, ROUNDS, path),
        two.append(&name, ROUNDS, path),
        three.append(&name, ROUNDS, path)
    );
    one.and(two).and(three)?;
    let text = std::fs::read_to_string(path)?;
    let lines: Vec<&str> = text.lines().collect();
    ensure_eq!(lines.len(), 3 * ROUNDS * 2, "lines that three processes wrote");
    for pair in lines.chunks(2) {
        let begun = pair[0].strip_prefix("begin ");
        ensure!(
            begun.is_some() && begun == pair[1].strip_prefix("end "),
            "two processes held the lock at once: their lines are {pair:?}"
        );
    }
    Ok(())
}

/// Clients try thousands of times to acquire a held lock, and all are refused. A case of a few attempts would miss a
/// store that wrongly grants one in some hundreds.
async fn held_lock_refuses_thousands_of_tries(stage: &Stage) -> Check {
    const TRIES: usize = 2000;
    const A_TURN: usize = 16;
    // On a slow store, fewer attempts must do.
    const BUDGET: Duration = Duration::from_secs(8);
    let (clients, name) = (stage.clients::<4>().await?, stage.name("a"));
    let begun = Moment::now();
    for (turn, holder) in (0..clients.len()).cycle().enumerate() {
        let guard = clients[holder].lock(&name).wait(PATIENCE).acquire().await?;
        let others = clients.iter().enumerate().filter(|(index, _)| *index != holder);
        let let_in = try_join_all(others.map(|(_, other)| tries_in_vain(other, &name, A_TURN))).await;
        // A client that gives way refuses a try without asking the store.
        let tries: usize = clients.iter().map(|client| client.probe.count(Method::TryAcquire, &name)).sum();
        ensure!(let_in.is_ok(), "in turn {turn}, while a client holds it ({guard:?}): {:?}", let_in.err());
        ensure!(
            guard.is_held(),
            "the holder lost its lock after {tries} attempts by other clients: {:?}",
            guard.loss()
        );
        guard.release().await?;
        if tries >= TRIES || Moment::now().since(begun) > BUDGET {
            break;
        }
    }
    Ok(())
}

/// Tries this often to acquire a held lock. The last attempt waits briefly.
async fn tries_in_vain(client: &Client, name: &str, tries: usize) -> Check {
    let mut refused = 0;
    for number in 1..tries {
        match client.lock(name).try_acquire().await {
            Ok(second) => {
                ensure!(
                    second.is_none(),
                    "attempt {number} was granted while another client holds it: {second:?}"
                );
                refused += 1;
            }
            // It was not granted either.
            Err(Error::Unavailable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    ensure!(refused > 0, "none of {tries} attempts got an answer while another client holds the lock");
    let waited = client.lock(name).wait(Duration::from_millis(5)).acquire().await;
    ensure_matches!(waited, Err(Error::Timeout { .. } | Error::Unavailable { .. }));
    Ok(())
}
