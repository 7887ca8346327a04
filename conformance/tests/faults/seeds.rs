//! Many seeds of the simulation: clients, faults and a network, in virtual time.
//!
//! `TENURE_SEEDS=200..400` runs other seeds; a failure names its seed, and shows it without faults that it does not need.

use super::{Careless, Flaw, shown};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tenure_conformance::{
    Simulation, Subject,
    faults::{Means, Options, Outcome, Schedule, run},
};
use tokio::runtime::Builder;

/// The kinds of stores that are simulated.
const KINDS: u64 = 4;

/// A run of this seed.
fn run_of(seed: u64) -> Outcome {
    run_on(simulated, &Options::seeded(seed))
}

fn simulated(seed: u64) -> Arc<dyn Subject> {
    let store = Simulation::seeded(seed);
    Arc::new(match seed % KINDS {
        0 => store,
        1 => store.polled(),
        2 => store.with_sessions(),
        _ => store.dated(),
    })
}

/// A run of one round, in virtual time, on a store of its own.
fn run_on(store: fn(u64) -> Arc<dyn Subject>, options: &Options) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (seed, options) = (options.seed, options.clone().lasting(Duration::ZERO));
        run(&store(seed), &options, |_, _| {}).await.unwrap_or_else(|stop| panic!("seed {seed}: {stop:?}"))
    })
}

/// The seed of a run that breaks the contract, without faults that are not needed for that: they are left out in ever
/// smaller groups, and stay out if something still breaks. And how many faults are left.
fn shrunk(store: fn(u64) -> Arc<dyn Subject>, seed: u64) -> (usize, Outcome) {
    let all = Options::seeded(seed).on(&*store(seed));
    let faults = {
        let runtime = Builder::new_current_thread().build().unwrap();
        let capabilities = runtime.block_on(store(seed).backend()).unwrap().capabilities();
        Schedule::of(&all, 0, &Means::of(&*store(seed), &all, capabilities)).in_order().len()
    };
    let mut outcome = run_on(store, &all);
    let (mut left_out, mut size) = (BTreeSet::new(), faults);
    while size > 0 {
        let left: Vec<_> = (0..faults).filter(|fault| !left_out.contains(fault)).collect();
        for group in left.chunks(size) {
            let mut fewer = all.clone();
            fewer.left_out = left_out.iter().chain(group).copied().collect();
            let shorter = run_on(store, &fewer);
            if !shorter.violations.is_empty() {
                (left_out, outcome) = (fewer.left_out, shorter);
            }
        }
        size /= 2;
    }
    (faults - left_out.len(), outcome)
}

#[test]
fn no_seed_breaks_the_contract() {
    let mut faults = BTreeSet::new();
    // For each kind of store.
    let (mut runs, mut grants, mut losses, mut handed_on) = ([0; 4], [0; 4], [0; 4], [0; 4]);
    for seed in seeds() {
        let outcome = run_of(seed);
        if !outcome.violations.is_empty() {
            let (faults, shorter) = shrunk(simulated, seed);
            panic!("seed {seed}, {faults} faults: {}", shown(&shorter));
        }
        let kind = (seed % KINDS) as usize;
        runs[kind] += 1;
        grants[kind] += outcome.figures.grants;
        losses[kind] += outcome.figures.losses;
        handed_on[kind] += outcome.figures.kinds.get("handed on").copied().unwrap_or_default();
        faults.extend(outcome.figures.faults.into_keys());
    }
    // Runs in which hardly anything happens prove nothing.
    for kind in 0..4 {
        let (runs, grants, losses) = (runs[kind], grants[kind], losses[kind]);
        assert!(
            grants >= runs * 10 && losses >= runs,
            "kind {kind}: {runs} runs, {grants} grants, {losses} losses"
        );
    }
    // Those with sessions hand nothing on. Where texts are dated, a release takes three trips.
    for (kind, part) in [(0, 4), (1, 4), (3, 8)] {
        assert!(handed_on[kind] >= runs[kind] / part, "kind {kind}: {handed_on:?}");
    }
    let runs: u64 = runs.iter().sum();
    let of_the_server: Vec<_> = faults.iter().filter(|fault| fault.starts_with("server: ")).collect();
    assert!(runs < 100 || of_the_server.len() == 13, "{of_the_server:?}");
}

#[test]
fn failing_seed_is_shrunk_to_the_faults_it_needs() {
    let reviving = |_| Careless::with(Flaw::RenewalRevives);
    let breaks = |seed: &u64| !run_on(reviving, &Options::seeded(*seed)).violations.is_empty();
    let seed = (0..20).find(breaks).expect("a renewal that revives is seen by 20 seeds");
    let (faults, outcome) = shrunk(reviving, seed);
    assert!(!outcome.violations.is_empty() && (1..=3).contains(&faults), "{faults}: {}", shown(&outcome));
}

#[test]
fn seed_has_one_history() {
    for seed in seeds().into_iter().take(10) {
        let (one, other) = (written(&run_of(seed)), written(&run_of(seed)));
        for (line, (one, other)) in one.iter().zip(&other).enumerate() {
            assert_eq!(one, other, "seed {seed}, line {line}");
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

/// The history, one event a line: times since its beginning, and claims numbered as they appear.
fn written(outcome: &Outcome) -> Vec<String> {
    let events = outcome.history.events();
    let (begun, mut claims) = (events[0].at.nanos(), Vec::new());
    let mut line = |event| {
        let mut event = serde_json::to_value(event).unwrap();
        for (key, value) in event.as_object_mut().unwrap() {
            if let ("at" | "by" | "until" | "since", Some(time)) = (&**key, value.as_u64()) {
                *value = time.wrapping_sub(begun).into();
            } else if key == "claim" {
                let known = claims.iter().position(|claim| claim == value);
                let number = known.unwrap_or(claims.len());
                if known.is_none() {
                    claims.push(value.clone());
                }
                *value = number.into();
            }
        }
        event.to_string()
    };
    events.iter().map(&mut line).collect()
}

fn seeds() -> Vec<u64> {
    let Ok(range) = std::env::var("TENURE_SEEDS") else { return (0..200).collect() };
    let (from, to) = range.split_once("..").expect("TENURE_SEEDS is a range such as 0..100");
    (from.parse().unwrap()..to.parse().unwrap()).collect()
}
