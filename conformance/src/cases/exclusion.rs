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
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::{Error, Moment};
use tokio::task::JoinSet;

cases!("exclusion":
    basic_cycle, independent_names, namespaces_never_meet, two_clients_exclude, hundred_tasks_exclude,
    counter_exact, cross_process, relock_immediately, held_lock_refuses_thousands_of_tries,
);

/// Long enough for a hundred handovers on a slow store; no case in this group waits this long unless something fails.
const PATIENCE: Duration = Duration::from_mins(4);

/// How long the grant of a free lock may take on a slow store.
const MOMENT: Duration = Duration::from_secs(15);

/// A client acquires, holds and releases a free lock, again and again.
async fn basic_cycle(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let guard = client.lock(&name).acquire().await?;
    ensure!(
        guard.is_held() && guard.name().as_str() == name,
        "a new guard must be held and have the lock's name: {guard:?}"
    );
    guard.release().await?;
    let guard = client.lock(&name).acquire().await?;
    guard.release().await?;
    Ok(free_at_once(&client.lock(&name)).await?.release().await?)
}

/// Locks of three names are held at once. The release of one does not free another.
async fn independent_names(stage: &Stage) -> Check {
    let [one, other] = stage.clients().await?;
    let a = one.lock(stage.name("a")).acquire().await?;
    // All are renewed: a wait for one of the others would end in vain.
    let b = other.lock(stage.name("b")).wait(MOMENT).acquire().await?;
    let c = one.lock(stage.name("c")).wait(MOMENT).acquire().await?;
    ensure!(
        a.is_held() && b.is_held() && c.is_held(),
        "three names must be held at once: {a:?}, {b:?}, {c:?}"
    );
    a.release().await?;
    still_held(&b)?;
    kept_out(&other.lock(stage.name("c"))).await?;
    b.release().await?;
    Ok(c.release().await?)
}

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

/// A place for one visitor at a time.
#[derive(Clone, Default)]
struct Room(Arc<AtomicUsize>);

impl Room {
    /// Goes in, stays until the others had a chance to run, and goes out.
    async fn visit(&self) -> Check {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let inside = self.0.load(Ordering::SeqCst);
        self.0.fetch_sub(1, Ordering::SeqCst);
        ensure_eq!((before, inside), (0, 1), "holders when this one entered, and while it was inside");
        Ok(())
    }
}

/// A hundred tasks of four clients acquire one lock. Each is alone while it holds it.
async fn hundred_tasks_exclude(stage: &Stage) -> Check {
    let (clients, name, room) = (stage.clients::<4>().await?, stage.name("a"), Room::default());
    let mut tasks = JoinSet::new();
    for client in clients.iter().cycle().take(100) {
        let (lock, room) = (client.lock(&name).wait(PATIENCE), room.clone());
        tasks.spawn(async move {
            let guard = lock.acquire().await?;
            room.visit().await?;
            Check::Ok(guard.release().await?)
        });
    }
    all(tasks).await
}

/// Tasks of two clients increment two counters, each under its lock. No increment is lost.
async fn counter_exact(stage: &Stage) -> Check {
    const TASKS: u64 = 8;
    const ROUNDS: u64 = 10;
    let clients = stage.clients::<2>().await?;
    let counters = [stage.name("a"), stage.name("b")].map(|name| (name, Arc::new(AtomicU64::new(0))));
    let mut tasks = JoinSet::new();
    for (client, _) in clients.iter().cycle().zip(0..TASKS) {
        for (name, counter) in &counters {
            tasks.spawn(count(client.clone(), name.clone(), Arc::clone(counter), ROUNDS));
        }
    }
    all(tasks).await?;
    for (name, counter) in counters {
        ensure_eq!(counter.load(Ordering::SeqCst), TASKS * ROUNDS, "increments counted under {name}");
    }
    Ok(())
}

/// Increments a number by reading, letting others run, and writing, so that two at once would lose an update.
async fn count(client: Client, name: String, counter: Arc<AtomicU64>, rounds: u64) -> Check {
    for _ in 0..rounds {
        let guard = client.lock(&name).wait(PATIENCE).acquire().await?;
        let seen = counter.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        counter.store(seen + 1, Ordering::SeqCst);
        guard.release().await?;
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

/// A client locks a name right after its release. That takes about as long as a new name.
async fn relock_immediately(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let turn = async |name: String| {
        let begun = Moment::now();
        client.lock(name).wait(MOMENT).acquire().await?.release().await?;
        Check::Ok(Moment::now().since(begun))
    };
    let (mut others, mut again) = (Duration::ZERO, Duration::ZERO);
    for number in 0..10 {
        // Names that were never locked show how fast the store and this machine are just now.
        others += turn(stage.name(&format!("new {number}"))).await?;
        again += turn(name.clone()).await?;
    }
    ensure!(
        again <= others * 2 + Duration::from_secs(10),
        "locking a name again after its release took {again:?} in ten rounds, but new names took {others:?}"
    );
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
    for number in 1..tries {
        let second = client.lock(name).try_acquire().await?;
        ensure!(second.is_none(), "attempt {number} was granted while another client holds it: {second:?}");
    }
    let waited = client.lock(name).wait(Duration::from_millis(5)).acquire().await;
    ensure_matches!(waited, Err(Error::Timeout { .. }));
    Ok(())
}

/// Waits for all tasks; the first failure is the outcome.
async fn all(mut tasks: JoinSet<Check>) -> Check {
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    Ok(())
}
