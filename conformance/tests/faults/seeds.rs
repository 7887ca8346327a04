//! Many seeds of the simulation: clients, faults and a network, in virtual time.
//!
//! `TENURE_SEEDS=200..400` runs other seeds; a failure names its seed.

use super::shown;
use std::{collections::BTreeSet, ops::Range, sync::Arc, time::Duration};
use tenure_conformance::{
    Simulation, Subject,
    faults::{Options, run},
};
use tokio::runtime::Builder;

#[test]
fn no_seed_breaks_the_contract() {
    let (mut grants, mut losses, mut handed_on, mut faults) = (0, 0, 0, BTreeSet::new());
    for seed in seeds() {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let outcome = runtime.block_on(async {
            let store = Simulation::seeded(seed);
            // Waiters queue, or ask again and again.
            let store: Arc<dyn Subject> = Arc::new(if seed % 2 == 1 { store.polled() } else { store });
            let options = Options::seeded(seed).lasting(Duration::ZERO);
            run(&store, &options, |_, _| {}).await.unwrap_or_else(|stop| panic!("seed {seed}: {stop:?}"))
        });
        assert!(outcome.violations.is_empty(), "seed {seed}: {}", shown(&outcome));
        grants += outcome.figures.grants;
        losses += outcome.figures.losses;
        handed_on += outcome.figures.kinds.get("handed on").copied().unwrap_or_default();
        faults.extend(outcome.figures.faults.into_keys());
    }
    let runs = u64::try_from(seeds().count()).unwrap();
    // Runs in which hardly anything happens prove nothing.
    assert!(grants > runs * 10 && losses > runs && handed_on > runs / 4, "{grants}, {losses}, {handed_on}");
    let of_the_server: Vec<_> = faults.iter().filter(|fault| fault.starts_with("server: ")).collect();
    assert!(runs < 100 || of_the_server.len() == 8, "{of_the_server:?}");
}

fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("TENURE_SEEDS") else { return 0..150 };
    let (from, to) = range.split_once("..").expect("TENURE_SEEDS is a range such as 0..100");
    from.parse().unwrap()..to.parse().unwrap()
}
