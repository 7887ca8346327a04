//! Foreign nodes and data in tenure's tree never count as a free lock, and errors name them.

use crate::{Scene, claim, server::ONE, try_grant};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use std::num::NonZeroU32;
use tenure_core::{Attempt, Backend, Claim, LatchStep, Mode, Name};
use tenure_testbed::claims::said;
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// Of another claim than the node's, and says that it lets readers in.
const CARD: &str =
    r#"{"claim":"6f1c2b3a-0000-4000-8000-000000000000","host":"h","pid":1,"since":1,"downgraded":true}"#;

fn permits(take: u32, of: u32) -> Mode {
    let number = |n| NonZeroU32::new(n).unwrap();
    Mode::Permit { take: number(take), of: number(of) }
}

/// How a stranger's node is held by the recipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Alone,
    Reader,
    Permit,
    /// A program chose the whole name. It may end in a number, and stand anywhere in the line.
    Anywhere,
}

#[derive(Clone, Debug)]
struct Stranger {
    name: String,
    stands: Stands,
    lasts: bool,
    data: Vec<u8>,
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => Just(CARD.as_bytes().to_vec()),
        1 => any::<prop::sample::Index>().prop_map(|end| CARD.as_bytes()[..end.index(CARD.len())].to_vec()),
        1 => Just(b"10.0.0.7".to_vec()),
        1 => any::<Vec<u8>>(),
    ]
}

/// One node of those that other programs make in a lock's node.
fn stranger() -> impl Strategy<Value = Stranger> {
    let uuid = "27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11";
    let alone = prop_oneof![
        Just(format!("_c_{uuid}-lock-")),
        Just(format!("_c_{uuid}-__WRIT__")),
        Just(format!("_c_{uuid}-from-5-__WRIT__")),
        Just("3f6b__lock__".to_owned()),
        Just("x-72057594-".to_owned()),
        Just(format!("_c_{uuid}-permit-0-of-2-lock-")),
        Just(format!("_c_{uuid}-permit-+1-of-2-lock-")),
        Just(format!("_c_{uuid}-permit-1-of-02-lock-")),
        "[a-z%é名 .+-]{0,8}",
    ];
    let named = prop_oneof![
        prop_oneof![Just(-1), Just(0), Just(1 << 30), Just(i32::MAX), Just(i32::MIN), any::<i32>()]
            .prop_map(|number| format!("x-{number:010}")),
        "[0-9a-z%é名 .+-]{3,24}",
        "x-{0,2}[0-9]{8,12}",
    ];
    let name = prop_oneof![
        4 => alone.prop_map(|name| (name, Stands::Alone)),
        1 => Just((format!("_c_{uuid}-__READ__"), Stands::Reader)),
        1 => Just(("3f6b__rlock__".to_owned(), Stands::Reader)),
        1 => Just((format!("_c_{uuid}-permit-1-of-2-lock-"), Stands::Permit)),
        3 => named.prop_map(|name| (name, Stands::Anywhere)),
    ];
    (name, any::<bool>(), data()).prop_map(|((name, stands), lasts, data)| Stranger {
        name,
        stands,
        lasts,
        data,
    })
}

impl Stranger {
    async fn appear(&self, eyes: &Client, lock: &str) {
        let mode = match (self.stands, self.lasts) {
            (Stands::Anywhere, true) => CreateMode::Persistent,
            (Stands::Anywhere, false) => CreateMode::Ephemeral,
            (_, true) => CreateMode::PersistentSequential,
            (_, false) => CreateMode::EphemeralSequential,
        };
        let options = mode.with_acls(Acls::anyone_all());
        match eyes.create(&format!("{lock}/{}", self.name), &self.data, &options).await {
            Ok(_) | Err(Error::NodeExists) => {}
            Err(error) => panic!("{self:?}: {error}"),
        }
    }

    /// Whether no claim of this mode may hold behind it.
    fn keeps_out(&self, mode: Mode) -> bool {
        match self.stands {
            Stands::Alone => true,
            Stands::Reader => mode != Mode::Shared,
            Stands::Permit => !matches!(mode, Mode::Permit { .. }),
            Stands::Anywhere => false,
        }
    }
}

/// A runtime, and a scene on it; `None` where there is no server.
fn scene(test: &str) -> Option<(tokio::runtime::Runtime, Scene)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scene = runtime.block_on(Scene::on(&ONE, test))?;
    Some((runtime, scene))
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

#[test]
fn strangers_in_the_line_are_never_passed() {
    let Some((runtime, scene)) = scene("strangers") else { return };
    let (held, backend) = runtime.block_on(async { (scene.backend().await, scene.backend().await) });
    let modes = [Mode::Shared, permits(1, 2), permits(1, 3), Mode::Exclusive];
    let place = std::cell::Cell::new(0);
    let kept_out = |(strangers, holds): (Vec<Stranger>, Option<usize>)| {
        let name = format!("a{}", place.replace(place.get() + 1));
        runtime.block_on(async {
            scene.keep(&name).await;
            for stranger in &strangers {
                stranger.appear(&scene.eyes, &scene.path(&name)).await;
            }
            // Ours, behind them if they let it.
            let mode = holds.map(|mode| modes[mode]);
            let ours = match mode {
                Some(mode) => held.try_acquire(&Claim { mode, ..claim(&name) }).await.ok(),
                None => None,
            };
            let grant = match ours {
                Some(Attempt::Granted(grant)) => Some(grant),
                _ => None,
            };
            if let (Some(mode), Some(_)) = (mode, &grant) {
                assert!(!strangers.iter().any(|stranger| stranger.keeps_out(mode)), "{mode} was granted");
            }
            for asked in modes {
                let beside = grant.as_ref().map(|grant| grant.mode);
                let out = strangers.iter().any(|stranger| stranger.keeps_out(asked))
                    || beside.is_some_and(|mode| !asked.admits([mode]));
                match backend.try_acquire(&Claim { mode: asked, ..claim(&name) }).await {
                    Ok(Attempt::Granted(granted)) => {
                        assert!(!out, "{asked} was granted beside {beside:?}");
                        backend.release(&granted).await.unwrap();
                    }
                    Ok(Attempt::Busy { .. }) => {}
                    Err(error) => {
                        let text = error.to_string();
                        assert!(
                            !error.is_unavailable() && text.contains("use the same number in all clients"),
                            "{text}"
                        );
                        assert!(matches!(asked, Mode::Permit { .. }), "{asked}: {text}");
                    }
                }
            }
            let shown = Name::new(&*name).unwrap();
            let holders = backend.holders(&shown).await.unwrap();
            let taken = grant.is_some() || strangers.iter().any(|one| one.stands != Stands::Anywhere);
            assert!(!taken || !holders.is_empty(), "it is shown as free");
            let strange = holders.iter().filter(|holder| holder.claim.is_some());
            assert!(strange.clone().count() <= usize::from(grant.is_some()), "{holders:?}");
            let listed = backend.list(&name).await.unwrap();
            assert!(listed.iter().filter(|holder| holder.name == shown).count() == holders.len());
            if let Some(grant) = grant {
                held.release(&grant).await.unwrap();
            }
            // It goes with what stands in it, so that lists stay short.
            scene.clear(&scene.path(&name)).await;
        });
        Ok(())
    };
    let cases = (prop::collection::vec(stranger(), 0..4), prop::option::of(0..4_usize));
    TestRunner::new(config(48)).run(&cases, kept_out).unwrap();
}

#[test]
fn strangers_beside_locks_are_no_locks() {
    let Some((runtime, scene)) = scene("beside") else { return };
    let (holder, backend) = runtime.block_on(async { (scene.backend().await, scene.backend().await) });
    let grant = runtime.block_on(try_grant(&holder, &claim("mine"))).unwrap();
    let element = prop_oneof![
        "[0-9a-zA-Z%é名 .+-]{1,24}",
        "(%[0-9a-fA-F]{0,2}|[a-z.]){1,6}",
        "mine[%0-9]{0,10}",
        Just("%latches".to_owned()),
        "x{200,210}",
    ];
    let element = element.prop_filter("a path holds it", |name| !matches!(&**name, "." | ".." | "mine"));
    let strangers =
        prop::collection::vec((element, any::<bool>(), data(), prop::option::of(stranger())), 1..5);
    let listed = |strangers: Vec<(String, bool, Vec<u8>, Option<Stranger>)>| {
        runtime.block_on(async {
            // A failed case may have left nodes.
            for element in scene.eyes.list_children(&scene.prefix).await.unwrap() {
                if element != "mine" {
                    scene.clear(&scene.path(&element)).await;
                }
            }
            for (element, lasts, data, below) in &strangers {
                let mode = if *lasts { CreateMode::Persistent } else { CreateMode::Ephemeral };
                let (path, options) = (scene.path(element), mode.with_acls(Acls::anyone_all()));
                match scene.eyes.create(&path, data, &options).await {
                    Ok(_) if *lasts => {
                        if let Some(below) = below {
                            below.appear(&scene.eyes, &scene.path(element)).await;
                        }
                    }
                    Ok(_) | Err(Error::NodeExists) => {}
                    Err(error) => panic!("{element:?}: {error}"),
                }
            }
            let listed = backend.list("").await.unwrap();
            let ours: Vec<_> = listed.iter().filter(|holder| holder.claim.is_some()).collect();
            assert_eq!(ours.len(), 1, "{listed:?}");
            assert_eq!((&*ours[0].name, ours[0].claim), ("mine", Some(grant.claim)));
            for holder in &listed {
                let holders = backend.holders(&holder.name).await.unwrap();
                assert!(!holders.is_empty(), "{} is shown as free", holder.name);
            }
        });
        Ok(())
    };
    TestRunner::new(config(48)).run(&strangers, listed).unwrap();
}

#[tokio::test]
async fn a_node_that_cannot_be_put_out_is_named() {
    let Some(scene) = Scene::on(&ONE, "rooted").await else { return };
    let backend = scene.backend().await;
    let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let node = format!("{}/x-0000000000", scene.path("a"));
    scene.eyes.mkdir(&format!("{node}/below"), &lasting).await.unwrap();
    let error = backend.force_release(&Name::new("a").unwrap()).await.unwrap_err();
    assert!(!error.is_unavailable(), "{error}");
    for part in [&*scene.path("a"), "has children", "delete"] {
        assert!(said(&error).contains(part), "{part}: {}", said(&error));
    }
    assert_eq!(backend.holders(&Name::new("a").unwrap()).await.unwrap().len(), 1);
    scene.clear(&node).await;
    assert!(try_grant(&backend, &claim("a")).await.is_some());
}

#[tokio::test]
async fn a_latch_of_strangers_is_named() {
    let Some(scene) = Scene::on(&ONE, "latch").await else { return };
    let backend = scene.backend().await;
    let name = Name::new("a").unwrap();
    let latch = scene.path("%latches/a");
    let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
    scene.eyes.mkdir(&latch, &lasting).await.unwrap();
    scene.eyes.set_data(&latch, b"02", None).await.unwrap();
    let error = backend.latch(&name, &LatchStep::Look).await.unwrap_err().to_string();
    let named = format!("another program created the node {latch}, which is not a latch; delete it");
    assert!(error.contains(&named), "{error}");
}

impl Scene {
    /// Takes a node away, with all below it.
    async fn clear(&self, path: &str) {
        let mut found = vec![path.to_owned()];
        let mut at = 0;
        while let Some(path) = found.get(at).cloned() {
            at += 1;
            if let Ok(children) = self.eyes.list_children(&path).await {
                found.extend(children.iter().map(|child| format!("{path}/{child}")));
            }
        }
        for path in found.iter().rev() {
            match self.eyes.delete(path, None).await {
                Ok(()) | Err(Error::NoNode) => {}
                Err(error) => panic!("{path}: {error}"),
            }
        }
    }
}
