//! Two clients that make random requests at once.

use super::{
    explain::explain,
    history::History,
    model::Rules,
    player::{Player, answered},
    scene::Scene,
};
use crate::{Check, Stage, check::Stop};
use futures_util::future::join_all;
use std::sync::Arc;
use tenure_core::{Capabilities, Mode, StandingKind};

/// How many histories are played.
const HISTORIES: u64 = 20;
/// How many rounds a history has: in each, both clients make some requests.
const ROUNDS: usize = 5;

/// Plays histories of claims in these modes, and looks for an order that explains each.
pub(crate) async fn play(stage: &Stage, modes: &'static [Mode]) -> Check {
    let stores = stage.clients::<2>().await?.map(|client| Arc::clone(client.probe.backend()));
    let Capabilities { fair, standing, .. } = stage.capabilities();
    let rules = Rules {
        fair,
        collides: stage.subject().attempts_collide(),
        in_sessions: standing == StandingKind::Session,
    };
    for seed in 0..HISTORIES {
        let history = played(Scene::set(stage, &stores, modes, seed)?).await?;
        explain(&history, rules).map_err(|what| Stop::failed(format_args!("seed {seed}: {what}")))?;
    }
    Ok(())
}

/// Plays one history.
async fn played(scene: Arc<Scene>) -> Check<History> {
    let mut players: Vec<Player> = (0..2).map(|client| Player::new(Arc::clone(&scene), client)).collect();
    for _ in 0..ROUNDS {
        let rounds = players.into_iter().map(|player| tokio::spawn(player.round()));
        players = join_all(rounds).await.into_iter().collect::<Result<Result<Vec<_>, Stop>, _>>()??;
    }
    for player in players {
        player.leave().await?;
    }
    if scene.capabilities.listing {
        for name in &scene.names {
            answered(scene.stores[0].force_release(name).await)?;
        }
    }
    let history = scene.history().clone();
    Ok(history)
}
