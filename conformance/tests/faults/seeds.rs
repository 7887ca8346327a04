//! Many seeds of the simulation: clients, faults and a network, in virtual time.
//!
//! `TENURE_SEEDS=200..400` runs other seeds; a failure names its seed.

use super::shown;
use std::{ops::Range, sync::Arc, time::Duration};
use tenure_conformance::{
    Simulation, Subject,
    faults::{Options, run},
};
use tokio::runtime::Builder;

#[test]
fn no_seed_breaks_the_contract() {
    let (mut grants, mut losses, mut handed_on) = (0, 0, 0);
    for seed in seeds() {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let outcome = runtime.block_on(async {
            let store: Arc<dyn Subject> = Arc::new(Simulation::seeded(seed));
            let options = Options::seeded(seed).lasting(Duration::ZERO);
            run(&store, &options, |_, _| {}).await.unwrap_or_else(|stop| panic!("seed {seed}: {stop:?}"))
        });
        assert!(outcome.violations.is_empty(), "seed {seed}: {}", shown(&outcome));
        grants += outcome.figures.grants;
        losses += outcome.figures.losses;
        handed_on += outcome.figures.kinds.get("handed on").copied().unwrap_or_default();
    }
    // A run in which hardly anything happened proves nothing.
    let runs = u64::try_from(seeds().count()).unwrap();
    assert!(grants > runs * 10 && losses > runs && handed_on > runs / 4, "{grants}, {losses}, {handed_on}");
}

fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("TENURE_SEEDS") else { return 0..150 };
    let (from, to) = range.split_once("..").expect("TENURE_SEEDS is a range such as 0..100");
    from.parse().unwrap()..to.parse().unwrap()
}
