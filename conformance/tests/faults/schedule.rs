//! The schedule follows from the seed alone.

use proptest::prelude::*;
use std::{collections::BTreeSet, time::Duration};
use tenure_conformance::{
    Fault, Method,
    faults::{AnyFault, Means, Options, Schedule, Track},
    saboteur::Hurt,
};

fn means() -> Means {
    Means { clients: 2, processes: 2, names: 2, conversions: true, hurts: Hurt::ALL.to_vec() }
}

proptest! {
    #[test]
    fn the_same_seed_gives_the_same_faults(seed in any::<u64>(), round in 0..1000_u64) {
        let options = Options::seeded(seed);
        let schedule = Schedule::of(&options, round, &means());
        prop_assert_eq!(&schedule, &Schedule::of(&options, round, &means()));
        prop_assert_ne!(&schedule, &Schedule::of(&Options::seeded(seed.wrapping_add(1)), round, &means()));
        prop_assert_ne!(&schedule, &Schedule::of(&options, round + 1, &means()));
        for (_, planned) in &schedule.tracks {
            for pair in planned.windows(2) {
                prop_assert!(pair[0].at + pair[0].lasts < pair[1].at, "faults of one track follow one another");
            }
            prop_assert!(planned.iter().all(|planned| planned.at < options.round));
        }
    }

    #[test]
    fn one_more_client_changes_nothing_for_the_others(seed in any::<u64>()) {
        let options = Options::seeded(seed);
        let few = Schedule::of(&options, 0, &means());
        let more = Schedule::of(&options, 0, &Means { clients: 3, ..means() });
        let beside = |(track, _): &&(Track, _)| *track != Track::Client(2);
        prop_assert_eq!(few.tracks, more.tracks.iter().filter(beside).cloned().collect::<Vec<_>>());
    }
}

#[test]
fn a_known_seed() {
    let options = Options::seeded(7).in_rounds_of(Duration::from_secs(5));
    let lines = Schedule::of(&options, 0, &means()).in_order();
    let lines = lines.iter().map(|(track, planned)| {
        format!(
            "{:>9?} {track:<12} {} for {:?}",
            planned.at,
            planned.what,
            planned.lasts,
            track = format!("{track:?}")
        )
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn every_kind_of_fault_comes() {
    let schedules = (0..50).map(|round| Schedule::of(&Options::seeded(1), round, &means()));
    let faults: Vec<AnyFault> =
        schedules.flat_map(|schedule| schedule.in_order()).map(|(_, planned)| planned.what).collect();
    let kinds: BTreeSet<String> = faults.iter().map(AnyFault::kind).collect();
    // Every hurt, forced releases, four kinds of requests, a hang, frozen and killed processes.
    assert_eq!(kinds.len(), Hurt::ALL.len() + 8, "{kinds:?}");
    // A request that comes after the client has given it up: each but an acquisition, which is many requests.
    for method in [Method::TryAcquire, Method::Renew, Method::Release, Method::Withdraw, Method::Convert] {
        let straggles =
            |fault: &AnyFault| matches!(fault, AnyFault::Request(of, Fault::Straggle(_)) if *of == method);
        assert!(faults.iter().any(straggles), "{method:?} never straggles");
    }
}
