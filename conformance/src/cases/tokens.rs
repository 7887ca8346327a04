//! Fencing tokens: each grant has a greater one (clauses T1 to T3).

use crate::{
    Check, FencedRegister, Need, Stage,
    case::cases,
    check::{ensure, ensure_eq, rises},
};
use std::time::Duration;

cases!("tokens":
    increasing_after_restart.alone(), increasing_after_wipe.alone(), fence_refuses_stale.policy(),
);

/// For waits that end by themselves when all is well, also where that takes a new connection of a busy server.
const PATIENCE: Duration = Duration::from_secs(20);

/// The store restarts. The next token is greater.
async fn increasing_after_restart(stage: &Stage) -> Check {
    let name = stage.name("a");
    let before = {
        let client = stage.client().await?;
        // A crash may undo the release. The name is then free after this lease (F4).
        let lease = Duration::from_secs(3);
        let guard = client.lock(&name).lease(lease).wait(PATIENCE).acquire().await?;
        let token = guard.token();
        guard.release().await?;
        token
    };
    stage.restart().await?;
    let guard = stage.client().await?.take(&name).await?;
    rises(before, guard.token())?;
    Ok(guard.release().await?)
}

/// The store loses all its data. The next token is greater all the same.
async fn increasing_after_wipe(stage: &Stage) -> Check {
    let name = stage.name("a");
    // Many grants first, so that a counter that starts again does not catch up by chance.
    let mut before = None;
    let client = stage.client().await?;
    for _ in 0..20 {
        let guard = client.take(&name).await?;
        before = Some(guard.token());
        guard.release().await?;
    }
    stage.wipe().await?;
    let guard = stage.client().await?.take(&name).await?;
    rises(before, guard.token())?;
    Ok(guard.release().await?)
}

/// A resource that checks tokens refuses a holder whose lease has expired.
async fn fence_refuses_stale(stage: &Stage) -> Check {
    stage.needs(Need::Lease)?;
    let ([one, other], name, register) = (stage.clients().await?, stage.name("a"), FencedRegister::new());
    let old = one.lost_by_expiry(&name).await?;
    let seen = register.read(old.token())?;
    let guard = other.take(&name).await?;
    register.write(guard.token(), register.read(guard.token())? + 1)?;
    ensure!(
        register.write(old.token(), seen + 1).is_err(),
        "a holder wrote with an older token than the newest holder's"
    );
    ensure!(
        register.read(old.token()).is_err(),
        "a holder read with an older token than the newest holder's"
    );
    register.write(guard.token(), register.read(guard.token())? + 1)?;
    guard.release().await?;
    let counts = (register.value(), register.refused(), register.lost_updates());
    ensure_eq!(counts, (2, 2, 0), "the resource's value, refusals and lost updates");
    Ok(())
}
