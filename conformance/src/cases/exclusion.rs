//! Exclusion: at most one holder at a time (clauses X1 to X3).

use crate::{
    Check, Client, Need, Stage,
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
use tenure_core::{Error, Moment, Owner};
use tokio::task::JoinSet;

cases!("exclusion":
    basic_cycle, contended_try_is_none, independent_names, namespaces_never_meet, two_clients_exclude,
    anonymous_tasks_exclude.policy(), different_owners_exclude.policy(), parallel_100, counter_exact, cross_process, relock_immediately,
    thousands_of_tries,
);

/// Long enough for a hundred handovers on a slow store; no case in this group waits this long unless something fails.
const PATIENCE: Duration = Duration::from_mins(4);

/// What a free lock may take on a slow store.
const MOMENT: Duration = Duration::from_secs(15);

async fn basic_cycle(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let guard = client.lock(&name).acquire().await?;
    ensure!(guard.is_held() && guard.name().as_str() == name, "a new guard says {guard:?}");
    guard.release().await?;
    let guard = client.lock(&name).acquire().await?;
    guard.release().await?;
    Ok(free_at_once(&client.lock(&name)).await?.release().await?)
}

async fn contended_try_is_none(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let guard = one.lock(&name).acquire().await?;
    for client in [&one, &other] {
        kept_out(&client.lock(&name)).await?;
    }
    still_held(&guard)?;
    Ok(guard.release().await?)
}

async fn independent_names(stage: &Stage) -> Check {
    let [one, other] = stage.clients().await?;
    let a = one.lock(stage.name("a")).acquire().await?;
    // All are renewed: whoever had to wait for one of the others would wait in vain.
    let b = other.lock(stage.name("b")).wait(MOMENT).acquire().await?;
    let c = one.lock(stage.name("c")).wait(MOMENT).acquire().await?;
    ensure!(a.is_held() && b.is_held() && c.is_held());
    a.release().await?;
    still_held(&b)?;
    kept_out(&other.lock(stage.name("c"))).await?;
    b.release().await?;
    Ok(c.release().await?)
}

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

async fn two_clients_exclude(stage: &Stage) -> Check {
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    for (holder, outsider) in [(&one, &other), (&other, &one)] {
        let guard = holder.lock(&name).wait(PATIENCE).acquire().await?;
        kept_out(&outsider.lock(&name)).await?;
        let waited = outsider.lock(&name).wait(Duration::from_millis(200)).acquire().await;
        ensure!(waited.is_err(), "granted beside a holder: {waited:?}");
        guard.release().await?;
    }
    Ok(())
}

async fn anonymous_tasks_exclude(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let guard = client.lock(&name).acquire().await?;
    kept_out(&client.lock(&name)).await?;
    let (lock, moment) = (client.lock(&name), Duration::from_millis(200));
    let waited = tokio::spawn(async move { lock.wait(moment).acquire().await.is_ok() }).await?;
    ensure!(!waited, "a second task acquired a lock that has no owner");
    Ok(guard.release().await?)
}

async fn different_owners_exclude(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let (me, you) = (Owner::new(), Owner::new());
    let guard = client.lock(&name).owner(&me).acquire().await?;
    kept_out(&client.lock(&name).owner(&you)).await?;
    kept_out(&client.lock(&name)).await?;
    guard.release().await?;
    let guard = client.lock(&name).owner(&you).acquire().await?;
    kept_out(&client.lock(&name).owner(&me)).await?;
    Ok(guard.release().await?)
}

/// A place for one at a time.
#[derive(Clone, Default)]
struct Room(Arc<AtomicUsize>);

impl Room {
    /// Goes in, stays until the others had a chance to run, and goes out.
    async fn visit(&self) -> Check {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let inside = self.0.load(Ordering::SeqCst);
        self.0.fetch_sub(1, Ordering::SeqCst);
        ensure_eq!((before, inside), (0, 1), "holders before this one came, and with it");
        Ok(())
    }
}

async fn parallel_100(stage: &Stage) -> Check {
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
        ensure_eq!(counter.load(Ordering::SeqCst), TASKS * ROUNDS, "the count under {name}");
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
    ensure_eq!(lines.len(), 3 * ROUNDS * 2);
    for pair in lines.chunks(2) {
        let begun = pair[0].strip_prefix("begin ");
        ensure!(
            begun.is_some() && begun == pair[1].strip_prefix("end "),
            "two processes held the lock at once: {pair:?}"
        );
    }
    Ok(())
}

async fn relock_immediately(stage: &Stage) -> Check {
    let (client, name) = (stage.client().await?, stage.name("a"));
    let turn = async |name: String| {
        let begun = Moment::now();
        client.lock(name).wait(MOMENT).acquire().await?.release().await?;
        Check::Ok(Moment::now().since(begun))
    };
    let (mut others, mut again) = (Duration::ZERO, Duration::ZERO);
    for number in 0..10 {
        // Locks that nobody had before show how fast the store and this machine are just now.
        others += turn(stage.name(&format!("new {number}"))).await?;
        again += turn(name.clone()).await?;
    }
    ensure!(
        again <= others * 2 + Duration::from_secs(10),
        "locking ten times what was just released took {again:?}, and ten other locks {others:?}"
    );
    Ok(())
}

/// Many attempts: a store that wrongly grants one in some hundreds would pass a case of a few.
async fn thousands_of_tries(stage: &Stage) -> Check {
    const TRIES: usize = 2000;
    const A_TURN: usize = 16;
    // On a slow store, fewer attempts must do.
    const BUDGET: Duration = Duration::from_secs(8);
    let (clients, name) = (stage.clients::<4>().await?, stage.name("a"));
    let (begun, mut tries) = (Moment::now(), 0);
    for (turn, holder) in (0..clients.len()).cycle().enumerate() {
        let guard = clients[holder].lock(&name).wait(PATIENCE).acquire().await?;
        let others = clients.iter().enumerate().filter(|(index, _)| *index != holder);
        let let_in = try_join_all(others.map(|(_, other)| tries_in_vain(other, &name, A_TURN))).await;
        tries += (clients.len() - 1) * A_TURN;
        ensure!(let_in.is_ok(), "in turn {turn}, with {guard:?}: {:?}", let_in.err());
        ensure!(
            guard.is_held(),
            "after {tries} tries by others the holder lost its lock: {:?}",
            guard.loss()
        );
        guard.release().await?;
        if tries >= TRIES || Moment::now().since(begun) > BUDGET {
            break;
        }
    }
    Ok(())
}

/// Tries this often to acquire what another holds; the last attempt waits briefly.
async fn tries_in_vain(client: &Client, name: &str, tries: usize) -> Check {
    for number in 1..tries {
        let second = client.lock(name).try_acquire().await?;
        ensure!(second.is_none(), "try {number} was granted beside the holder: {second:?}");
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
