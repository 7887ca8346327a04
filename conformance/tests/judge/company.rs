//! Holders that may hold a name at the same time.

use crate::script::{LEASE, Script, at};
use proptest::prelude::*;
use std::num::NonZeroU32;
use tenure_conformance::judge::{Broken, Effect, Judge};
use tenure_core::Mode::{self, Exclusive, Shared};

fn permits(take: u32, of: u32) -> Mode {
    let number = |number| NonZeroU32::new(number).expect("not zero");
    Mode::Permit { take: number(take), of: number(of) }
}

fn found(script: &Script) -> Vec<Broken> {
    Judge::new().judge(&script.history()).iter().map(|violation| violation.broken).collect()
}

/// Each joins while those before it are there; then all release.
fn together(modes: &[Mode]) -> Script {
    let mut script = Script::default();
    for (number, mode) in (1..).zip(modes) {
        script.joins(10 * number, &format!("c{number}"), number, *mode);
    }
    for number in 1..=modes.len() as u64 {
        script.releases(200, &format!("c{number}"), number);
    }
    script
}

#[test]
fn other_holders_are_caught() {
    use Broken::{TooManyHolders, TwoHolders};
    for (modes, expected) in [
        (&[Exclusive, Shared][..], vec![TwoHolders]),
        (&[Shared, Exclusive], vec![TwoHolders]),
        (&[Exclusive, permits(1, 3)], vec![TwoHolders]),
        (&[Shared, permits(1, 3)], vec![TwoHolders]),
        (&[permits(1, 3), permits(1, 4)], vec![TwoHolders]),
        (&[permits(2, 3), permits(2, 3)], vec![TwoHolders]),
        // A writer comes in beside two readers.
        (&[Shared, Shared, Exclusive], vec![TwoHolders, TwoHolders]),
        (&[permits(1, 3), permits(1, 3), permits(1, 3), permits(1, 3)], vec![TooManyHolders]),
        (&[permits(2, 4), permits(1, 4), permits(2, 4)], vec![TooManyHolders]),
    ] {
        assert_eq!(found(&together(modes)), expected, "{modes:?}");
    }
}

#[test]
fn excess_permits_end_with_enough_releases() {
    let mut script = Script::default();
    for number in 1..=4 {
        script.joins(number, &format!("c{number}"), number, permits(1, 3));
    }
    for (number, at) in [(2, 50), (1, 80), (3, 90), (4, 100)] {
        script.releases(at, &format!("c{number}"), number);
    }
    let violations = Judge::new().judge(&script.history());
    let [violation] = &violations[..] else { panic!("{violations:?}") };
    assert_eq!((violation.from, violation.to), (at(4), at(50)));
    assert_eq!(violation.clients, ["c1", "c2", "c3", "c4"]);
}

#[test]
fn conversion_changes_exclusion() {
    // A writer that becomes a reader lets readers in, and no sooner.
    for (enters, expected) in [(60, vec![]), (40, vec![Broken::TwoHolders])] {
        let mut script = Script::default();
        script.joins(0, "a", 1, Exclusive).converted(50, "a", 1, Shared);
        script.joins(enters, "b", 2, Shared).releases(90, "a", 1).releases(95, "b", 2);
        assert_eq!(found(&script), expected, "{enters}");
    }
    // A reader that becomes a writer is alone from then on.
    for (leaves, expected) in [(40, vec![]), (60, vec![Broken::TwoHolders])] {
        let mut script = Script::default();
        script.joins(0, "a", 1, Shared).joins(10, "b", 2, Shared).releases(leaves, "b", 2);
        script.converted(50, "a", 1, Exclusive).releases(90, "a", 1);
        assert_eq!(found(&script), expected, "{leaves}");
    }
    // And a downgrade that undid an upgrade let a reader in beside a writer.
    let mut script = Script::default();
    script.joins(0, "a", 1, Exclusive).converted(20, "a", 1, Shared).converted(40, "a", 1, Exclusive);
    script.joins(60, "b", 2, Shared).releases(90, "a", 1).releases(95, "b", 2);
    assert_eq!(found(&script), [Broken::TwoHolders]);
}

#[test]
fn forgotten_reader_is_excused_for_lease() {
    for (effect, expected) in
        [(Effect::Forgets { name: None }, vec![]), (Effect::None, vec![Broken::TwoHolders])]
    {
        let mut script = Script::default();
        script.joins(0, "a", 1, Shared).fault(20, 21, "store", "hurt", effect);
        script.joins(50, "b", 2, Exclusive).releases(90, "b", 2).releases(95, "a", 1);
        assert_eq!(found(&script), expected);
    }
}

/// As memory showed with seed 202, and SQLite with 203: a forced-out writer that does not know it yet becomes a reader.
#[test]
fn forgotten_writer_is_excused_as_reader() {
    use Broken::TwoHolders;
    for (effect, leaves, expected) in [
        (Effect::Forgets { name: None }, 80, vec![]),
        (Effect::None, 80, vec![TwoHolders, TwoHolders]),
        // More than a lease after it was forgotten.
        (Effect::Forgets { name: None }, 340, vec![TwoHolders]),
    ] {
        let mut script = Script::default();
        script.joins(0, "a", 1, Exclusive).fault(20, 21, "store", "hurt", effect);
        script.joins(50, "b", 2, Exclusive).holds(55, "b", 2, 400).converted(60, "a", 1, Shared);
        script.holds(65, "a", 1, 400).releases(leaves, "a", 1).releases(350, "b", 2);
        assert_eq!(found(&script), expected, "{leaves}");
    }
}

/// Its client stood still between the grant and the note of it.
#[test]
fn forgotten_grant_is_excused_if_noted_late() {
    for (effect, expected) in [
        (Effect::Forgets { name: None }, vec![]),
        (Effect::None, vec![Broken::TwoHolders, Broken::TokenDidNotRise]),
    ] {
        let mut script = Script::default();
        let early = script.asks(0, "a", None);
        script.fault(20, 21, "store", "hurt", effect).joins(50, "b", 2, Exclusive);
        script.granted_in(60, "a", early, 1, Exclusive).releases(90, "a", 1).releases(95, "b", 2);
        assert_eq!(found(&script), expected);
    }
}

#[test]
fn shared_holders_may_be_noted_in_any_order() {
    for (mode, expected) in
        [(Shared, vec![]), (permits(1, 3), vec![]), (permits(2, 3), vec![Broken::TokenDidNotRise])]
    {
        let mut script = Script::default();
        let early = script.asks(0, "a", None);
        script.joins(20, "b", 2, mode).releases(25, "b", 2);
        script.granted_in(30, "a", early, 1, mode).releases(40, "a", 1);
        assert_eq!(found(&script), expected, "{mode}");
        // The later holder has a greater token, in any mode.
        let mut script = Script::default();
        script.joins(20, "b", 2, mode).releases(25, "b", 2);
        script.joins(30, "a", 1, mode).releases(40, "a", 1);
        assert_eq!(found(&script), [Broken::TokenDidNotRise], "{mode}");
    }
}

/// A hold: when it begins, how long it lasts, and in which mode.
fn holds() -> impl Strategy<Value = Vec<(u64, u64, Mode)>> {
    let mode = prop_oneof![
        1 => Just(Exclusive),
        3 => Just(Shared),
        3 => (1..=3_u32).prop_map(|take| permits(take, 3)),
    ];
    prop::collection::vec((0..400_u64, 1..LEASE, mode), 1..14)
}

proptest! {
    /// A store that checks the present holders breaks nothing; one that admits one holder too many is caught.
    #[test]
    fn judge_agrees_with_modes(mut holds in holds()) {
        holds.sort_by_key(|(from, ..)| *from);
        let (mut careful, mut careless) = (Script::default(), Script::default());
        let mut there: Vec<(u64, Mode)> = Vec::new();
        let mut all: Vec<(u64, Mode)> = Vec::new();
        let mut wrong = false;
        for (token, (from, lasts, mode)) in (1..).zip(&holds) {
            let client = format!("c{token}");
            let join = |script: &mut Script, there: &mut Vec<(u64, Mode)>| {
                script.joins(*from, &client, token, *mode).releases(from + lasts, &client, token);
                there.push((from + lasts, *mode));
            };
            let stand_at = |there: &[(u64, Mode)]| -> Vec<Mode> {
                there.iter().filter(|(to, _)| to > from).map(|(_, mode)| *mode).collect()
            };
            if mode.admits(stand_at(&there)) {
                join(&mut careful, &mut there);
            }
            wrong |= !mode.admits(stand_at(&all));
            join(&mut careless, &mut all);
        }
        prop_assert_eq!(found(&careful), []);
        prop_assert_eq!(!found(&careless).is_empty(), wrong);
    }
}
