//! A fault run of half a minute: clients, processes and faults at random, checked by the [judge](crate::judge).
//!
//! Each day has another seed. `TENURE_SEED` gives any; a failure names its own.

use crate::{
    Check, Stage,
    case::cases,
    faults::{Options, check},
};
use std::time::Duration;

cases!("fault_run": no_clause_is_broken.alone());

/// The judge finds no violation in the run.
async fn no_clause_is_broken(stage: &Stage) -> Check {
    check(stage.subject(), &Options::of_the_day()?.lasting(Duration::from_secs(30))).await
}
