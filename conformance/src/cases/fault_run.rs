//! A fault run of half a minute: clients, processes and faults at random, checked by the [judge](crate::judge).
//!
//! Each day has another seed. `TENURE_SEED` gives any; a failure names its own.

use crate::{
    Check, Stage,
    case::cases,
    check::{Stop, ensure},
    faults::{Options, run},
    judge::Judge,
};
use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

cases!("fault_run": no_clause_is_broken.alone());

const LENGTH: Duration = Duration::from_secs(30);
const DAY: u64 = 24 * 60 * 60;

/// The judge finds no violation in the run.
async fn no_clause_is_broken(stage: &Stage) -> Check {
    let seed = seed()?;
    let run = run(stage.subject(), &Options::seeded(seed).lasting(LENGTH), |_, _| {}).await;
    let outcome = run.map_err(|stop| match stop {
        Stop::Failed(why) => Stop::failed(format_args!("seed {seed}: {why}")),
        Stop::Lacks(need) => Stop::Lacks(need),
    })?;
    if let Some(violation) = Judge::smallest(&outcome.violations) {
        let timeline = violation.timeline(&outcome.history);
        return Err(Stop::failed(format_args!("seed {seed}: {violation}\n{timeline}")));
    }
    // A run in which hardly anything happens proves nothing.
    ensure!(
        outcome.figures.grants > 0 && outcome.figures.injected() > 0,
        "seed {seed}: a run needs grants and faults to prove anything, but had {}",
        outcome.figures
    );
    Ok(())
}

fn seed() -> Check<u64> {
    match env::var("TENURE_SEED") {
        Ok(seed) => Ok(seed.parse()?),
        Err(_) => Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / DAY),
    }
}
