//! Readers and permits in the queue of a lock.

use crate::{Scene, eventually, in_time, server::ONE};
use std::{num::NonZeroU32, time::Duration};
use tenure_conformance::{
    proxy::{Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Error, Guard, Lock, Locks, LossCause, Mode};
use tenure_zk::ZkBackend;
use tokio::task::JoinHandle;

/// Long enough for a request that is on its way to take effect.
const MOMENT: Duration = Duration::from_millis(200);

/// Somebody who waits.
pub(crate) type Waiting = JoinHandle<Result<Guard, Error>>;

/// Has it wait, and comes back when it stands in the line as the last of so many.
pub(crate) async fn wait(scene: &Scene, name: &str, lock: Lock, count: usize) -> Waiting {
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_nodes(name, count).await;
    waiting
}

pub(crate) async fn granted(waiting: Waiting) -> Guard {
    in_time("the grant", waiting).await.unwrap().unwrap()
}

pub(crate) async fn none_is_finished(waiting: &[&Waiting]) {
    tokio::time::sleep(MOMENT).await;
    assert!(!waiting.iter().any(|waiting| waiting.is_finished()), "granted out of turn");
}

fn permits(take: u32, of: u32) -> Mode {
    Mode::Permit { take: NonZeroU32::new(take).unwrap(), of: NonZeroU32::new(of).unwrap() }
}

#[tokio::test]
async fn a_node_says_how_it_holds() {
    let Some(scene) = Scene::on(&ONE, "forms").await else { return };
    let locks = scene.locks().await;
    let read_write = Locks::new(ZkBackend::connect(scene.options().read_write_nodes(true)).await.unwrap());
    for (name, lock, form) in [
        ("read", locks.rw("read").read(), "__READ__"),
        ("write", locks.rw("write").write(), "lock-"),
        ("permit", locks.semaphore("permit", 4).permits(2), "permit-2-of-4-lock-"),
        ("alone", read_write.lock("alone"), "__WRIT__"),
        ("beside", read_write.rw("beside").read(), "__READ__"),
    ] {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(scene.nodes(name).await, [format!("_c_{}-{form}0000000000", guard.claim())]);
        let holder = locks.holders(name).await.unwrap().remove(0);
        assert_eq!(
            (holder.claim, holder.token, holder.mode),
            (Some(guard.claim()), Some(guard.token()), guard.mode())
        );
        guard.release().await.unwrap();
    }
}

/// Those who name their nodes one way and those who name them the other way are in one line.
#[tokio::test]
async fn both_kinds_of_writers_exclude_each_other() {
    let Some(scene) = Scene::on(&ONE, "kinds").await else { return };
    let one = scene.locks().await;
    let other = Locks::new(ZkBackend::connect(scene.options().read_write_nodes(true)).await.unwrap());
    for (first, second) in [(&one, &other), (&other, &one)] {
        let guard = first.lock("a").acquire().await.unwrap();
        assert!(second.lock("a").try_acquire().await.unwrap().is_none());
        assert!(second.rw("a").read().try_acquire().await.unwrap().is_none());
        let waiting = wait(&scene, "a", second.lock("a"), 2).await;
        guard.release().await.unwrap();
        granted(waiting).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn readers_and_writers_are_served_in_turn() {
    let Some(scene) = Scene::on(&ONE, "in-turn").await else { return };
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(scene.locks().await.rw("a"));
    }
    let writer = clients[0].write().acquire().await.unwrap();
    let readers =
        [wait(&scene, "a", clients[1].read(), 2).await, wait(&scene, "a", clients[2].read(), 3).await];
    let next = wait(&scene, "a", clients[3].write(), 4).await;
    let behind =
        [wait(&scene, "a", clients[4].read(), 5).await, wait(&scene, "a", clients[5].read(), 6).await];
    none_is_finished(&[&readers[0], &readers[1], &next, &behind[0], &behind[1]]).await;
    let last = writer.token();
    writer.release().await.unwrap();
    let [one, other] = readers;
    let (one, other) = (granted(one).await, granted(other).await);
    assert!(last < one.token() && one.token() < other.token());
    none_is_finished(&[&next, &behind[0], &behind[1]]).await;
    // Whichever of them goes last lets the writer in.
    other.release().await.unwrap();
    none_is_finished(&[&next]).await;
    one.release().await.unwrap();
    let next = granted(next).await;
    none_is_finished(&[&behind[0], &behind[1]]).await;
    next.release().await.unwrap();
    for reader in behind {
        granted(reader).await.release().await.unwrap();
    }
}

/// Behind a writer that gives up, readers wait for the one before it.
#[tokio::test]
async fn a_writer_that_gives_up_lets_nobody_past_another() {
    let Some(scene) = Scene::on(&ONE, "gives-up").await else { return };
    let clients = [scene.locks().await, scene.locks().await, scene.locks().await, scene.locks().await];
    let reader = clients[0].rw("a").read().acquire().await.unwrap();
    let writers = [
        wait(&scene, "a", clients[1].rw("a").write(), 2).await,
        wait(&scene, "a", clients[2].rw("a").write(), 3).await,
    ];
    let behind = wait(&scene, "a", clients[3].rw("a").read(), 4).await;
    writers[1].abort();
    scene.until_nodes("a", 3).await;
    none_is_finished(&[&writers[0], &behind]).await;
    writers[0].abort();
    let beside = granted(behind).await;
    assert!(reader.is_held() && beside.is_held());
}

#[tokio::test]
async fn permits_are_served_in_turn() {
    let Some(scene) = Scene::on(&ONE, "permits").await else { return };
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(scene.locks().await.semaphore("a", 4));
    }
    let held = [clients[0].permits(3).acquire().await.unwrap(), clients[1].permit().acquire().await.unwrap()];
    let two = wait(&scene, "a", clients[2].permits(2), 3).await;
    let one = wait(&scene, "a", clients[3].permit(), 4).await;
    let all = wait(&scene, "a", clients[4].permits(4), 5).await;
    let [three, single] = held;
    single.release().await.unwrap();
    // One is free, and goes to nobody: the next wants two.
    none_is_finished(&[&two, &one, &all]).await;
    assert!(clients[5].permit().try_acquire().await.unwrap().is_none(), "passed those who wait");
    three.release().await.unwrap();
    let (two, one) = (granted(two).await, granted(one).await);
    assert!(two.token() < one.token());
    none_is_finished(&[&all]).await;
    two.release().await.unwrap();
    none_is_finished(&[&all]).await;
    one.release().await.unwrap();
    granted(all).await.release().await.unwrap();
}

/// Each tells the one behind it.
#[tokio::test]
async fn many_permits_that_come_free_at_once_all_find_their_holders() {
    const OF: u32 = 20;
    let Some(scene) = Scene::on(&ONE, "at-once").await else { return };
    let holder = scene.locks().await;
    let all = holder.semaphore("a", OF).permits(OF).acquire().await.unwrap();
    let (mut clients, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..=OF as usize {
        let locks = scene.locks().await;
        waiting.push(wait(&scene, "a", locks.semaphore("a", OF).permit(), number + 2).await);
        clients.push(locks);
    }
    let last = waiting.pop().unwrap();
    all.release().await.unwrap();
    let mut held = Vec::new();
    for waiting in waiting {
        held.push(granted(waiting).await);
    }
    none_is_finished(&[&last]).await;
    held.swap_remove(7).release().await.unwrap();
    granted(last).await.release().await.unwrap();
}

/// Whoever waits in vain between two permits and goes wakes the one behind it, if need be.
#[tokio::test]
async fn a_permit_that_gives_up_leaves_no_gap() {
    let Some(scene) = Scene::on(&ONE, "gap").await else { return };
    let clients = [scene.locks().await, scene.locks().await, scene.locks().await, scene.locks().await];
    let permits = |client: usize, take| clients[client].semaphore("a", 3).permits(take);
    let held = [permits(0, 1).acquire().await.unwrap(), permits(1, 1).acquire().await.unwrap()];
    let many = wait(&scene, "a", permits(2, 3), 3).await;
    let one = wait(&scene, "a", permits(3, 1), 4).await;
    none_is_finished(&[&many, &one]).await;
    many.abort();
    let third = granted(one).await;
    assert!(held.iter().all(|guard| guard.is_held()) && third.is_held());
}

#[tokio::test]
async fn who_disagrees_about_the_number_leaves_the_line() {
    let Some(scene) = Scene::on(&ONE, "disagree").await else { return };
    let (one, other) = (scene.locks().await, scene.locks().await);
    let guard = one.semaphore("a", 4).permit().acquire().await.unwrap();
    let all = wait(&scene, "a", scene.locks().await.semaphore("a", 4).permits(4), 2).await;
    let lock = other.semaphore("a", 7).permit();
    for outcome in [lock.acquire().await.map(drop), lock.try_acquire().await.map(drop)] {
        let Err(error @ Error::Mismatch { .. }) = outcome else { panic!("{outcome:?}") };
        assert!(!error.is_retryable());
    }
    scene.until_nodes("a", 2).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    granted(all).await.release().await.unwrap();
    // Where nobody holds any, nobody disagrees yet.
    let alone = one.lock("a").acquire().await.unwrap();
    let some = wait(&scene, "a", scene.locks().await.semaphore("a", 4).permits(3), 2).await;
    let late = wait(&scene, "a", lock, 3).await;
    let next = wait(&scene, "a", scene.locks().await.semaphore("a", 4).permit(), 4).await;
    none_is_finished(&[&some, &late, &next]).await;
    alone.release().await.unwrap();
    let (some, next) = (granted(some).await, granted(next).await);
    let refused = in_time("the refusal", late).await.unwrap();
    assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
    assert!(some.is_held() && next.is_held());
}

#[tokio::test]
async fn all_who_hold_are_told_and_put_out_and_nobody_else() {
    let Some(scene) = Scene::on(&ONE, "all-told").await else { return };
    let clients = [scene.locks().await, scene.locks().await, scene.locks().await];
    let readers = [
        clients[0].rw("a").read().acquire().await.unwrap(),
        clients[1].rw("a").read().acquire().await.unwrap(),
    ];
    let writer = wait(&scene, "a", clients[2].rw("a").write(), 3).await;
    let behind = wait(&scene, "a", clients[0].rw("a").read(), 4).await;
    let some = clients[1].semaphore("b", 4).permits(3).acquire().await.unwrap();
    let told = clients[2].list("").await.unwrap();
    let told: Vec<_> = told.iter().map(|holder| (holder.claim.unwrap(), holder.mode)).collect();
    let (first, second) = ((readers[0].claim(), Mode::Shared), (readers[1].claim(), Mode::Shared));
    assert_eq!(told, [first, second, (some.claim(), permits(3, 4))]);
    assert_eq!(clients[0].force_release("a").await.unwrap().len(), 2);
    for reader in readers {
        assert_eq!(in_time("the loss", reader.lost()).await, LossCause::Forced);
    }
    let writer = granted(writer).await;
    none_is_finished(&[&behind]).await;
    writer.release().await.unwrap();
    granted(behind).await.release().await.unwrap();
}

/// Another client's readers and writers, as far as their nodes' names tell.
#[tokio::test]
async fn foreign_readers_are_readers() {
    use zookeeper_client::{Acls, CreateMode};
    let Some(scene) = Scene::on(&ONE, "foreign-readers").await else { return };
    let locks = scene.locks().await;
    scene.keep("a").await;
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for (form, reads) in [
        ("_c_27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11-__READ__", true),
        ("27d6a1ac9c3b4a1e8d5c9d1f6d7b1c11__rlock__", true),
        ("_c_27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11-__WRIT__", false),
        ("27d6a1ac9c3b4a1e8d5c9d1f6d7b1c11__lock__", false),
    ] {
        let base = format!("{}/{form}", scene.path("a"));
        let (_, number) = scene.eyes.create(&base, b"10.0.0.7", &options).await.unwrap();
        let reader = locks.rw("a").read().try_acquire().await.unwrap();
        assert_eq!(reader.is_some(), reads, "{form}");
        assert!(locks.rw("a").write().try_acquire().await.unwrap().is_none(), "{form}");
        let told = locks.holders("a").await.unwrap();
        assert_eq!(told[0].mode == Mode::Shared, reads);
        drop(reader);
        let waiting = wait(&scene, "a", locks.rw("a").write(), 2).await;
        scene.eyes.delete(&format!("{base}{number}"), None).await.unwrap();
        granted(waiting).await.release().await.unwrap();
        eventually("it is free", async || scene.nodes("a").await.is_empty()).await;
    }
}

/// What a claim waits for changes after the claim has looked at the line, and before it watches that.
#[tokio::test]
async fn nothing_is_missed_between_a_look_and_a_watch() {
    const DELAY: Duration = Duration::from_millis(500);
    let Some(scene) = Scene::on(&ONE, "between").await else { return };
    let proxy = Proxy::start(scene.place().address().await).await.unwrap();
    let slow = Locks::new(ZkBackend::connect(scene.through(&proxy)).await.unwrap());
    let clients = [scene.locks().await, scene.locks().await, scene.locks().await];

    // The one before it is admitted, and tells.
    let one = |client: usize| clients[client].semaphore("a", 2).permit();
    let held = [one(0).acquire().await.unwrap(), one(1).acquire().await.unwrap()];
    let next = wait(&scene, "a", one(2), 3).await;
    proxy.set(Direction::Requests, Flow::Delay(DELAY));
    let last = wait(&scene, "a", slow.semaphore("a", 2).permit(), 4).await;
    let [first, second] = held;
    first.release().await.unwrap();
    let next = granted(next).await;
    tokio::time::sleep(DELAY * 2).await;
    assert!(!last.is_finished());
    second.release().await.unwrap();
    granted(last).await.release().await.unwrap();
    next.release().await.unwrap();

    // The writer before it has its turn, and becomes a reader.
    proxy.set(Direction::Requests, Flow::Pass);
    let first = clients[0].lock("b").acquire().await.unwrap();
    let next = wait(&scene, "b", clients[1].rw("b").write(), 2).await;
    proxy.set(Direction::Requests, Flow::Delay(DELAY));
    let last = wait(&scene, "b", slow.rw("b").read(), 3).await;
    first.release().await.unwrap();
    let mut next = granted(next).await;
    next.downgrade().await.unwrap();
    granted(last).await.release().await.unwrap();
    next.release().await.unwrap();
}

/// A node that has been changed for reasons of its own is no reason to look again and again.
#[tokio::test]
async fn a_changed_node_is_looked_at_once() {
    use zookeeper_client::{Acls, CreateMode};
    let Some(scene) = Scene::on(&ONE, "changed").await else { return };
    let locks = [scene.locks().await, scene.locks().await];
    let writer = locks[0].lock("a").acquire().await.unwrap();
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let base = format!("{}/x-", scene.path("a"));
    let (_, number) = scene.eyes.create(&base, b"", &options).await.unwrap();
    scene.eyes.set_data(&format!("{base}{number}"), b"changed", None).await.unwrap();
    let reader = wait(&scene, "a", locks[1].rw("a").read(), 3).await;
    writer.release().await.unwrap();
    none_is_finished(&[&reader]).await;
    scene.eyes.set_data(&format!("{base}{number}"), b"again", None).await.unwrap();
    none_is_finished(&[&reader]).await;
    scene.eyes.delete(&format!("{base}{number}"), None).await.unwrap();
    granted(reader).await.release().await.unwrap();
}
