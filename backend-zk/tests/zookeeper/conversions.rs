//! Writers that become readers, and readers that become writers.

use crate::{
    Scene, claim, eventually,
    faults::session_of,
    in_the_end, in_time,
    modes::{granted, none_is_finished, wait},
    server::ONE,
    takeover::end_session,
    try_grant,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tenure_conformance::{
    proxy::{Counters, Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Backend, Claim, Conversion, Locks, LossCause, Mode, Release, Standing};
use tenure_zk::ZkBackend;
use tokio::task::JoinSet;

#[tokio::test]
async fn a_downgrade_lets_in_the_readers_behind_it_and_no_writer() {
    let Some(scene) = Scene::on(&ONE, "downgrade").await else { return };
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(scene.locks().await.rw("a"));
    }
    let mut guard = clients[0].write().acquire().await.unwrap();
    let node = scene.node("a", 0).await;
    let (reader, token) = (wait(&scene, "a", clients[1].read(), 2).await, guard.token());
    let writer = wait(&scene, "a", clients[2].write(), 3).await;
    let behind = wait(&scene, "a", clients[3].read(), 4).await;
    guard.downgrade().await.unwrap();
    let reader = granted(reader).await;
    none_is_finished(&[&writer, &behind]).await;
    assert_eq!((scene.node("a", 0).await, guard.token()), (node, token), "it lost its place");
    let told = scene.locks().await.holders("a").await.unwrap();
    let told: Vec<_> = told.iter().map(|holder| (holder.claim, holder.mode)).collect();
    assert_eq!(told, [(Some(guard.claim()), Mode::Shared), (Some(reader.claim()), Mode::Shared)]);
    assert!(!guard.try_upgrade().await.unwrap(), "two read");
    reader.release().await.unwrap();
    none_is_finished(&[&writer]).await;
    // Back again, before the writer that waits.
    assert!(guard.try_upgrade().await.unwrap());
    none_is_finished(&[&writer, &behind]).await;
    guard.downgrade().await.unwrap();
    none_is_finished(&[&writer, &behind]).await;
    guard.release().await.unwrap();
    granted(writer).await.release().await.unwrap();
    granted(behind).await.release().await.unwrap();
    // Readers who come later find it as a reader.
    let mut guard = clients[0].write().acquire().await.unwrap();
    guard.downgrade().await.unwrap();
    let tried = clients[3].read().try_acquire().await.unwrap().expect("beside a reader");
    let waited = in_time("a grant", clients[4].read().acquire()).await.unwrap();
    assert!(clients[2].write().try_acquire().await.unwrap().is_none());
    drop((guard, tried, waited));
}

#[tokio::test]
async fn an_upgrade_keeps_its_place_and_its_token() {
    let Some(scene) = Scene::on(&ONE, "upgrade").await else { return };
    let clients = [scene.locks().await, scene.locks().await, scene.locks().await];
    let mut guard = clients[0].rw("a").read().acquire().await.unwrap();
    let writer = wait(&scene, "a", clients[1].rw("a").write(), 2).await;
    assert!(guard.try_upgrade().await.unwrap());
    let (claim, token) = (guard.claim(), guard.token());
    assert_eq!(scene.nodes("a").await[0], format!("_c_{claim}-from-{token}-__WRIT__0000000000"));
    let reader = wait(&scene, "a", clients[2].rw("a").read(), 3).await;
    none_is_finished(&[&writer, &reader]).await;
    assert!(guard.is_held() && guard.token() == token);
    let told = clients[1].holders("a").await.unwrap();
    assert_eq!(
        told.iter().map(|holder| (holder.claim, holder.token, holder.mode)).collect::<Vec<_>>(),
        [(Some(claim), Some(token), Mode::Exclusive)]
    );
    guard.release().await.unwrap();
    let writer = granted(writer).await;
    assert!(writer.token() > token);
    writer.release().await.unwrap();
    granted(reader).await.release().await.unwrap();
}

/// Its new node is watched as its old one was, whenever the old one's watch is set.
#[tokio::test]
async fn an_upgraded_node_that_is_deleted_is_a_loss() {
    let Some(scene) = Scene::on(&ONE, "upgraded-loss").await else { return };
    let locks = scene.locks().await;
    for pauses in [[0, 0], [300, 0], [0, 300], [300, 300]] {
        let pause = async |at: usize| tokio::time::sleep(Duration::from_millis(pauses[at])).await;
        let mut guard = locks.rw("a").read().acquire().await.unwrap();
        pause(0).await;
        assert!(guard.try_upgrade().await.unwrap());
        pause(1).await;
        assert!(guard.is_held(), "{pauses:?}: {:?}", guard.loss());
        assert_eq!(locks.force_release("a").await.unwrap().len(), 1);
        assert_eq!(in_time("the loss", guard.lost()).await, LossCause::Forced, "{pauses:?}");
        assert!(guard.release().await.is_err());
    }
}

/// The upgrade is carried out, but its client does not hear of it before the new node is deleted, and nobody waits for
/// the answer any more.
#[tokio::test]
async fn an_unheard_upgrade_whose_node_is_deleted_is_a_loss() {
    let Some(scene) = Scene::on(&ONE, "unheard-loss").await else { return };
    let proxy = Proxy::start(scene.place().address().await).await.unwrap();
    let backend = ZkBackend::connect(scene.through(&proxy)).await.unwrap();
    let grant = try_grant(&backend, &Claim { mode: Mode::Shared, ..claim("a") }).await.unwrap();
    let Standing::Session(liveness) = grant.standing.clone() else { panic!("{grant:?}") };
    // Nothing before the answer to the upgrade has this name.
    proxy.set(Direction::Replies, Flow::StopAt(&["__WRIT__0000000000"]));
    let converting = tokio::spawn({
        let backend = backend.clone();
        async move { backend.convert(&grant, Mode::Exclusive).await }
    });
    eventually("the upgrade", async || scene.node("a", 0).await.contains("__WRIT__")).await;
    in_time("the answer", proxy.until(|counters| counters.replies.dropped > 0)).await;
    converting.abort();
    scene.eyes.delete(&scene.node("a", 0).await, None).await.unwrap();
    proxy.cut().await;
    proxy.mend().await.unwrap();
    assert_eq!(in_time("the loss", liveness.ended()).await, LossCause::Forced);
}

#[tokio::test]
async fn who_was_put_out_is_told() {
    let Some(scene) = Scene::on(&ONE, "converted-late").await else { return };
    let backend = scene.backend().await;
    for (from, to) in [(Mode::Exclusive, Mode::Shared), (Mode::Shared, Mode::Exclusive)] {
        let claim = Claim { mode: from, ..claim("a") };
        let grant = try_grant(&backend, &claim).await.unwrap();
        backend.force_release(&claim.name).await.unwrap();
        // The server reaps it as well, sooner or later.
        match scene.eyes.delete(&scene.path("a"), None).await {
            Ok(()) | Err(zookeeper_client::Error::NoNode) => {}
            Err(error) => panic!("{error}"),
        }
        let answer = backend.convert(&grant, to).await.unwrap();
        assert_eq!(answer, Conversion::Lost(LossCause::Forced));
        assert!(matches!(backend.release(&grant).await.unwrap(), Release::Lost(_)));
    }
}

/// Also when the client has another session by then.
#[tokio::test]
async fn whose_session_has_ended_is_told_so() {
    let Some(scene) = Scene::on(&ONE, "converted-over").await else { return };
    let backend = scene.backend().await;
    let grant = try_grant(&backend, &Claim { mode: Mode::Shared, ..claim("a") }).await.unwrap();
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    let (server, session) = (scene.place().direct_address().await, session_of(&scene, "a", 0).await);
    in_time("the session's end", end_session(server, session)).await;
    in_time("the loss", liveness.ended()).await;
    try_grant(&backend, &claim("b")).await.unwrap();
    let answer = backend.convert(&grant, Mode::Exclusive).await.unwrap();
    assert_eq!(answer, Conversion::Lost(LossCause::SessionEnded));
}

#[tokio::test]
async fn converted_already_is_converted() {
    let Some(scene) = Scene::on(&ONE, "converted-twice").await else { return };
    let backend = scene.backend().await;
    let claim = Claim { mode: Mode::Shared, ..claim("a") };
    let grant = try_grant(&backend, &claim).await.unwrap();
    for to in [Mode::Shared, Mode::Exclusive, Mode::Exclusive, Mode::Shared, Mode::Shared, Mode::Exclusive] {
        assert_eq!(backend.convert(&grant, to).await.unwrap(), Conversion::Converted, "{to}");
        assert_eq!(backend.holders(&claim.name).await.unwrap()[0].mode, to);
    }
    assert_eq!(backend.release(&grant).await.unwrap(), Release::Released { awaited: false });
    assert!(scene.nodes("a").await.is_empty());
}

/// Readers come and go while others become writers and readers again: nobody ever reads beside a writer.
#[tokio::test]
async fn no_reader_slips_past_an_upgrade() {
    const TURNS: u32 = 40;
    /// How many times one has to be alone: the first three try for as long as that takes.
    const UPGRADES: usize = 5;
    let Some(scene) = Scene::on(&ONE, "slips").await else { return };
    let (readers, writing, upgrades) = <(Arc<AtomicUsize>, Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
    let mut tasks = JoinSet::new();
    for number in 0..6 {
        let rw = scene.locks().await.rw("a");
        let (readers, writing, upgrades) =
            (Arc::clone(&readers), Arc::clone(&writing), Arc::clone(&upgrades));
        tasks.spawn(async move {
            for turn in 0.. {
                let tries = number < 3 && upgrades.load(Ordering::SeqCst) < UPGRADES;
                if turn >= TURNS && !tries {
                    break;
                }
                let began = Instant::now();
                let mut guard = rw.read().acquire().await.unwrap();
                readers.fetch_add(1, Ordering::SeqCst);
                assert!(!writing.load(Ordering::SeqCst), "it reads beside a writer");
                if number < 3 && turn % 2 == 0 && guard.try_upgrade().await.unwrap() {
                    assert!(!writing.swap(true, Ordering::SeqCst), "two write");
                    for _ in 0..3 {
                        assert_eq!(readers.load(Ordering::SeqCst), 1, "it writes beside readers");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    upgrades.fetch_add(1, Ordering::SeqCst);
                    writing.store(false, Ordering::SeqCst);
                    guard.downgrade().await.unwrap();
                }
                readers.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
                // As long as a few turns, or on a slow server somebody would always be there.
                tokio::time::sleep(began.elapsed() * ((turn + number) % 4)).await;
            }
        });
    }
    in_the_end("all turns, with some alone", async {
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
    })
    .await;
    scene.until_nodes("a", 0).await;
}

/// A reader that comes between the look at the line and the change keeps its share; one that comes after the change
/// has to wait. Both while the node is replaced, and while its data are changed.
#[tokio::test]
async fn a_reader_that_comes_during_an_upgrade_is_seen() {
    let Some(scene) = Scene::on(&ONE, "during").await else { return };
    let proxy = Proxy::start(scene.place().address().await).await.unwrap();
    let slow = Locks::new(ZkBackend::connect(scene.through(&proxy)).await.unwrap());
    let (reads, late) = (scene.locks().await.rw("a").read(), scene.locks().await.rw("a").read());
    for before in [true, false] {
        let mut guard = slow.rw("a").read().acquire().await.unwrap();
        for round in ["replaced", "changed"] {
            // Until the node is watched, which would count as well.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let begun = proxy.counters();
            // No answer reaches the client before the proxy has the whole look.
            proxy.set(Direction::Replies, Flow::Hold);
            let came = async {
                let looked = had(&proxy, Direction::Replies, &begun).await;
                proxy.set(Direction::Requests, Flow::Hold);
                proxy.set(Direction::Replies, Flow::Pass);
                let asked = had(&proxy, Direction::Requests, &looked).await;
                if !before {
                    proxy.set(Direction::Replies, Flow::Hold);
                    proxy.set(Direction::Requests, Flow::Pass);
                    had(&proxy, Direction::Replies, &asked).await;
                }
                let reader = wait(&scene, "a", reads.clone(), 2).await;
                let reader = if before { Ok(granted(reader).await) } else { Err(reader) };
                proxy.mend().await.unwrap();
                reader
            };
            let (upgraded, reader) = tokio::join!(guard.try_upgrade(), came);
            assert_eq!(upgraded.unwrap(), !before, "{round}");
            assert!(guard.is_held(), "{round}: {:?}", guard.loss());
            let reader = match reader {
                Ok(reader) => {
                    assert!(reader.is_held());
                    // It is open to readers again.
                    in_time("another share", late.acquire()).await.unwrap().release().await.unwrap();
                    reader
                }
                Err(reader) => {
                    none_is_finished(&[&reader]).await;
                    guard.downgrade().await.unwrap();
                    granted(reader).await
                }
            };
            reader.release().await.unwrap();
            // From here on its data say what it is.
            assert!(scene.node("a", 0).await.contains("__WRIT__"));
        }
        guard.release().await.unwrap();
    }
}

/// Waits until the proxy has had a list of the line since then, a change of a node, or the answer to one.
async fn had(proxy: &Proxy, direction: Direction, since: &Counters) -> Counters {
    /// More bytes than a ping and the answer to a look's `sync` have together, and fewer than any of those.
    const SHORTER: u64 = 70;
    let arrived = |counters: &Counters| match direction {
        Direction::Requests => counters.requests.arrived,
        Direction::Replies => counters.replies.arrived,
    };
    let enough = arrived(since) + SHORTER;
    in_time("a look or a change", proxy.until(|counters| arrived(counters) > enough)).await
}

/// The connection breaks somewhere in a conversion: before the servers hear of it, or after they have carried it out.
#[tokio::test]
async fn a_lost_reply_is_settled() {
    let Some(scene) = Scene::on(&ONE, "converted-unheard").await else { return };
    scene.keep("a").await;
    let proxy = Proxy::start(scene.place().address().await).await.unwrap();
    let backend = ZkBackend::connect(scene.through(&proxy)).await.unwrap();
    let (mut unheard, eyes) = (0, scene.backend().await);
    for step in 0..24_u64 {
        let claim = Claim { mode: Mode::Shared, ..claim("a") };
        let grant = try_grant(&backend, &claim).await.unwrap();
        for to in [Mode::Exclusive, Mode::Shared] {
            let converting = tokio::spawn({
                let (backend, grant) = (backend.clone(), grant.clone());
                async move { backend.convert(&grant, to).await }
            });
            tokio::time::sleep(Duration::from_micros(step % 12 * 300)).await;
            proxy.set(Direction::Replies, Flow::Drop);
            tokio::time::sleep(Duration::from_millis(30)).await;
            let heard = converting.is_finished();
            proxy.cut().await;
            proxy.mend().await.unwrap();
            let answer = in_time("the answer", converting).await.unwrap();
            unheard += usize::from(!heard);
            // Every other time it is released as it is.
            if step % 2 == 0 && !heard {
                break;
            }
            // It failed, or it was settled; asked again it is answered.
            if answer.is_err() {
                in_time("an answer", async { while backend.convert(&grant, to).await.is_err() {} }).await;
            }
            assert_eq!(eyes.holders(&claim.name).await.unwrap()[0].mode, to);
        }
        assert_eq!(
            in_time("the release", backend.release(&grant)).await.unwrap(),
            Release::Released { awaited: false }
        );
        scene.until_nodes("a", 0).await;
    }
    assert!(unheard > 0, "every conversion was answered");
}

/// A conversion whose caller goes, and a release right after it.
#[tokio::test]
async fn a_release_during_a_conversion_leaves_nothing() {
    let Some(scene) = Scene::on(&ONE, "released-meanwhile").await else { return };
    let (locks, other) = (scene.locks().await, scene.locks().await);
    for round in 0..60 {
        let mut guard = locks.rw("a").read().acquire().await.unwrap();
        {
            let converting = guard.try_upgrade();
            let mut converting = std::pin::pin!(converting);
            for _ in 0..=round % 4 {
                if futures_util::poll!(&mut converting).is_ready() {
                    break;
                }
                tokio::time::sleep(Duration::from_micros(300 * (round % 5))).await;
            }
        }
        assert!(guard.is_held());
        in_time("the release", guard.release()).await.unwrap();
        let next = in_time("the next", other.lock("a").acquire()).await.unwrap();
        assert_eq!(scene.nodes("a").await.len(), 1);
        next.release().await.unwrap();
    }
}
