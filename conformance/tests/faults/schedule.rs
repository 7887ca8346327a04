//! The schedule follows from the seed alone.

use proptest::prelude::*;
use std::{collections::BTreeSet, time::Duration};
use tenure_conformance::{
    Fault, Method,
    faults::{AnyFault, Means, Options, Planned, Schedule, Track},
    judge::{Broken, Event, History, Judge, Stamp, What},
    saboteur::Hurt,
};
use tenure_core::Mode;

/// The requests that are disturbed where a store has every mode.
const METHODS: [Method; 8] = [
    Method::TryAcquire,
    Method::TryAcquireAll,
    Method::Acquire,
    Method::Release,
    Method::Renew,
    Method::Withdraw,
    Method::Convert,
    Method::Latch,
];

fn means() -> Means {
    let (methods, hurts) = (METHODS.to_vec(), Hurt::ALL.to_vec());
    Means { clients: 2, processes: 2, names: 2, methods, hurts, members: 3, files: true }
}

proptest! {
    #[test]
    fn equal_seeds_give_equal_faults(seed in any::<u64>(), round in 0..1000_u64) {
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
    fn additional_client_leaves_other_schedules_alone(seed in any::<u64>()) {
        let options = Options::seeded(seed);
        let few = Schedule::of(&options, 0, &means());
        let more = Schedule::of(&options, 0, &Means { clients: 3, ..means() });
        let beside = |(track, _): &&(Track, _)| *track != Track::Client(2);
        prop_assert_eq!(few.tracks, more.tracks.iter().filter(beside).cloned().collect::<Vec<_>>());
    }
}

#[test]
fn known_seed_gives_known_schedule() {
    let mut options = Options::seeded(7);
    options.round = Duration::from_secs(5);
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
fn network_or_another_member_fails_during_other_faults_of_the_server() {
    let schedules = (0..300).map(|round| Schedule::of(&Options::seeded(1), round, &means()));
    let planned: Vec<_> = schedules.flat_map(|schedule| schedule.in_order()).collect();
    let pairs: Vec<_> = planned.iter().filter_map(|(_, one)| Some((one.what, one.second?))).collect();
    let (mut firsts, mut seconds) = (BTreeSet::new(), BTreeSet::new());
    for (first, second) in &pairs {
        assert_ne!(*first, AnyFault::Server(*second));
        if Hurt::OF_ONE.contains(&second.hurt) {
            let of_another = matches!(first, AnyFault::Server(first)
                if Hurt::OF_ONE.contains(&first.hurt) && first.member != second.member);
            assert!(of_another, "{first:?} {second:?}");
        }
        firsts.insert(first.kind());
        seconds.insert(second.hurt);
    }
    assert!(firsts.len() > 10 && !firsts.contains("server: cut connections"), "{firsts:?}");
    assert_eq!(seconds, Hurt::NETWORK.into_iter().chain(Hurt::OF_ONE).collect(), "{pairs:?}");
}

#[test]
fn schedule_has_every_kind_of_fault() {
    let schedules = (0..50).map(|round| Schedule::of(&Options::seeded(1), round, &means()));
    let faults: Vec<AnyFault> =
        schedules.flat_map(|schedule| schedule.in_order()).map(|(_, planned)| planned.what).collect();
    let kinds: BTreeSet<String> = faults.iter().map(AnyFault::kind).collect();
    // Every hurt, forced releases, four kinds of requests, a hang, processes frozen, killed, without files and without
    // writes.
    assert_eq!(kinds.len(), Hurt::ALL.len() + 10, "{kinds:?}");
    // A request that comes after the client has given it up: each but an acquisition, which is many requests.
    for method in METHODS.into_iter().filter(|method| *method != Method::Acquire) {
        let straggles =
            |fault: &AnyFault| matches!(fault, AnyFault::Request(of, Fault::Straggle(_)) if *of == method);
        assert!(faults.iter().any(straggles), "{method:?} never straggles");
    }
}

/// The notes of a holder and a waiter that believe, and wait, until the end of the fault instead of a lease.
fn noticing_nothing_during(fault: &Planned, options: &Options) -> History {
    let begins = Stamp::ZERO + Duration::from_secs(100) + fault.at;
    let (due, over) = (begins + options.lease, begins + fault.lasts);
    let (name, claim, lease) = ("a".to_owned(), "x".to_owned(), options.lease);
    let (mode, token) = (Mode::Exclusive, 7);
    let granted = What::Granted {
        call: 1,
        name: name.clone(),
        claim: claim.clone(),
        mode,
        token,
        until: due,
        lease,
        label: String::new(),
    };
    let notes = [
        (begins, "holder", What::Asks { call: 1, name: name.clone(), by: None }),
        (begins, "holder", granted),
        (begins, "waiter", What::Asks { call: 1, name, by: Some(due) }),
        (over, "holder", What::Lost { claim: claim.clone(), token, cause: "session_ended".into() }),
        (over, "holder", What::Releases { claim, token }),
        (over, "waiter", What::Ended { call: 1, why: "timeout".into() }),
    ];
    let event = |(at, client, what): (Stamp, &str, What)| Event { at, client: client.into(), what };
    notes.into_iter().map(event).collect::<Vec<_>>().into()
}

/// Faults lasted 2.5 leases at most, and the judge allows for 3: a loss that is noticed late, and a waiter that hangs,
/// were never seen.
#[test]
fn some_faults_outlast_judge_allowance() {
    let options = Options::seeded(7);
    let judge = Judge::new().allowing(options.allowance);
    let found = |fault: &Planned| {
        let violations = judge.judge(&noticing_nothing_during(fault, &options));
        violations.into_iter().map(|violation| violation.broken).collect::<Vec<_>>()
    };
    let schedules: Vec<_> = (0..40).map(|round| Schedule::of(&options, round, &means())).collect();
    for track in [Track::Store, Track::Client(0), Track::Client(1)] {
        let of_track = schedules.iter().flat_map(|schedule| &schedule.tracks).filter(|(of, _)| *of == track);
        let faults: Vec<&Planned> = of_track.flat_map(|(_, planned)| planned).collect();
        let all = faults.len();
        let (long, short): (Vec<&Planned>, Vec<&Planned>) =
            faults.into_iter().partition(|fault| fault.lasts > options.lease * 5 / 2);
        for fault in &long {
            assert_eq!(found(fault), [Broken::LossLate, Broken::WaiterHung], "{fault:?}");
            assert!(fault.at + fault.lasts <= options.round, "it is over before the round is: {fault:?}");
        }
        assert!(short.iter().all(|fault| found(fault).is_empty()), "{short:?}");
        // One in four, but for those that come late in a round.
        let long = long.len();
        assert!((all / 8..=all / 4).contains(&long), "{track:?}: {long} of {all}");
    }
}
