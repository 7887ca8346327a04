//! Writers that become readers, and readers that become writers.

use crate::{
    Scene, USUAL_SESSION, claim, end_session, granted, in_time, none_is_finished, quiet, server::ONE,
    try_grant, until, wait,
};
use std::time::Duration;
use tenure_conformance::{
    pause,
    proxy::{Counters, Flow, Proxy},
    saboteur::Direction,
};
use tenure_core::{Backend, Claim, Conversion, LossCause, Mode, Release, Standing};

/// The server carries the upgrade out, but the caller stops waiting, and the client hears nothing before the new node
/// is deleted.
#[tokio::test]
async fn unheard_upgrade_whose_node_is_deleted_is_a_loss() {
    let Some(scene) = Scene::on(&ONE, "unheard-loss").await else { return };
    let (proxy, backend) = scene.past_proxy(USUAL_SESSION).await;
    let grant = try_grant(&backend, &Claim { mode: Mode::Shared, ..claim("a") }).await.unwrap();
    let Standing::Session(liveness) = grant.standing.clone() else { panic!("{grant:?}") };
    // Nothing before the answer to the upgrade has this name.
    proxy.set(Direction::Replies, Flow::StopAt(&["__WRIT__0000000000"]));
    let converting = tokio::spawn({
        let backend = backend.clone();
        async move { backend.convert(&grant, Mode::Exclusive).await }
    });
    until("the upgrade", async || scene.node("a", 0).await.contains("__WRIT__")).await;
    in_time("the answer", proxy.until(|counters| counters.replies.dropped > 0)).await;
    converting.abort();
    scene.eyes.delete(&scene.node("a", 0).await, None).await.unwrap();
    proxy.cut().await;
    proxy.mend().await.unwrap();
    assert_eq!(in_time("the loss", liveness.ended()).await, LossCause::Forced);
}

/// Also when the client has another session by then.
#[tokio::test]
async fn conversion_after_a_loss_names_its_cause() {
    let Some(scene) = Scene::on(&ONE, "converted-late").await else { return };
    let (proxy, backend) = scene.past_proxy(USUAL_SESSION).await;
    for (from, to) in [(Mode::Exclusive, Mode::Shared), (Mode::Shared, Mode::Exclusive)] {
        let claim = Claim { mode: from, ..claim("a") };
        let grant = try_grant(&backend, &claim).await.unwrap();
        backend.force_release(&claim.name).await.unwrap();
        // The server reaps it as well, sooner or later.
        match scene.eyes.delete(&scene.path("a"), None).await {
            Ok(()) | Err(zookeeper_client::Error::NoNode) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(backend.convert(&grant, to).await.unwrap(), Conversion::Lost(LossCause::Forced));
        assert!(matches!(backend.release(&grant).await.unwrap(), Release::Lost(_)));
    }
    let grant = try_grant(&backend, &Claim { mode: Mode::Shared, ..claim("a") }).await.unwrap();
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    end_session(scene.place().address().await, &proxy).await;
    in_time("the loss", liveness.ended()).await;
    try_grant(&backend, &claim("b")).await.unwrap();
    let answer = backend.convert(&grant, Mode::Exclusive).await.unwrap();
    assert_eq!(answer, Conversion::Lost(LossCause::SessionEnded));
}

/// A reader that comes between the look at the line and the change keeps its share; one that comes after the change
/// has to wait. Both while the node is replaced, and while its data are changed.
#[tokio::test]
async fn reader_that_comes_during_an_upgrade_is_seen() {
    let Some(scene) = Scene::on(&ONE, "during").await else { return };
    let (proxy, slow) = scene.behind_proxy().await;
    let (reads, late) = (scene.locks().await.rw("a").read(), scene.locks().await.rw("a").read());
    for before in [true, false] {
        let mut guard = slow.rw("a").read().acquire().await.unwrap();
        for round in ["replaced", "changed"] {
            // That the node is watched would count as well.
            quiet(&proxy).await;
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
async fn conversion_is_settled_after_a_lost_reply() {
    let Some(scene) = Scene::on(&ONE, "converted-unheard").await else { return };
    scene.keep("a").await;
    let (proxy, backend) = scene.past_proxy(USUAL_SESSION).await;
    let (mut unheard, eyes) = (0, scene.backend().await);
    for step in 0..12_u64 {
        let claim = Claim { mode: Mode::Shared, ..claim("a") };
        let grant = try_grant(&backend, &claim).await.unwrap();
        for to in [Mode::Exclusive, Mode::Shared] {
            let converting = tokio::spawn({
                let (backend, grant) = (backend.clone(), grant.clone());
                async move { backend.convert(&grant, to).await }
            });
            pause::settle(Duration::from_micros(step % 12 * 300)).await;
            proxy.set(Direction::Replies, Flow::Drop);
            pause::settle(Duration::from_millis(30)).await;
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
            let again = in_time("an answer", async {
                loop {
                    if let Ok(answer) = backend.convert(&grant, to).await {
                        return answer;
                    }
                }
            });
            assert_eq!(again.await, Conversion::Converted, "asked for twice");
            assert_eq!(eyes.holders(&claim.name).await.unwrap()[0].mode, to, "asked for twice");
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
async fn release_during_a_conversion_leaves_nothing() {
    let Some(scene) = Scene::on(&ONE, "released-meanwhile").await else { return };
    let (locks, other) = (scene.locks().await, scene.locks().await);
    for round in 0..20 {
        let mut guard = locks.rw("a").read().acquire().await.unwrap();
        {
            let converting = guard.try_upgrade();
            let mut converting = std::pin::pin!(converting);
            for _ in 0..=round % 4 {
                if futures_util::poll!(&mut converting).is_ready() {
                    break;
                }
                pause::settle(Duration::from_micros(300 * (round % 5))).await;
            }
        }
        assert!(guard.is_held());
        in_time("the release", guard.release()).await.unwrap();
        let next = in_time("the next", other.lock("a").acquire()).await.unwrap();
        assert_eq!(scene.nodes("a").await.len(), 1);
        next.release().await.unwrap();
    }
}
