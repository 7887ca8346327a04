//! Grants that are handed on inside a client: each hold of a chain has the claim of the first, and a token of its own.

use crate::script::{Script, at, claim};
use std::time::Duration;
use tenure_conformance::judge::{Broken, Effect, Judge, Outcome, What};

/// The deadline of the first hold, which its successors have too.
const UNTIL: u64 = 290;
/// How many successors the client allows.
const SUCCESSORS: u32 = 2;

/// The findings of a judge that allows for so many successors.
fn found(script: &Script) -> Vec<Broken> {
    let judge = Judge::new().with_succession(SUCCESSORS);
    judge.judge(&script.history()).iter().map(|violation| violation.broken).collect()
}

/// `a/1` is granted the lock with token 7, and begins to release it at this time.
fn first(releases: u64) -> Script {
    let mut script = Script::default();
    script.asks(0, "a/1", None);
    script.granted(1, "a/1", 7, UNTIL).releases(releases, "a/1", 7);
    script
}

/// A task of the client inherits the grant.
fn inherits(script: &mut Script, asks: u64, inherits: u64, client: &str, token: u64) {
    let call = script.asks(asks, client, None);
    script.granted_as(inherits, client, call, claim(7), token, UNTIL);
}

fn releases(script: &mut Script, millis: u64, client: &str, token: u64) {
    script.note(millis, client, What::Releases { claim: claim(7), token });
}

#[test]
fn correct_chain_has_no_violation() {
    let mut script = first(40);
    inherits(&mut script, 20, 41, "a/2", 8);
    // The release returns when the successor holds already.
    script.note(42, "a/1", What::Released { claim: claim(7), token: 7, outcome: Outcome::Released });
    releases(&mut script, 60, "a/2", 8);
    inherits(&mut script, 50, 61, "a/1", 9);
    script.note(150, "a/1", What::Holds { claim: claim(7), token: 9, until: at(440) });
    releases(&mut script, 400, "a/1", 9);
    script.asks(5, "b", None);
    script.granted(401, "b", 10, 690).releases(410, "b", 10);
    assert_eq!(found(&script), []);
}

#[test]
fn successor_needs_greater_token() {
    for token in [6, 7] {
        for effect in [Effect::None, Effect::Forgets { name: None }] {
            let mut script = first(40);
            // The store was not asked, so its loss does not matter.
            script.fault(10, 11, "store", "wiped", effect);
            inherits(&mut script, 20, 41, "a/2", token);
            releases(&mut script, 60, "a/2", token);
            assert_eq!(found(&script), [Broken::TokenDidNotRise], "{token}");
        }
    }
}

#[test]
fn holds_of_a_chain_exclude_each_other() {
    for effect in [Effect::None, Effect::Forgets { name: None }] {
        let mut script = first(50);
        script.fault(10, 11, "store", "wiped", effect);
        inherits(&mut script, 20, 41, "a/2", 8);
        releases(&mut script, 60, "a/2", 8);
        assert_eq!(found(&script), [Broken::TwoHolders]);
    }
}

#[test]
fn chain_excludes_other_clients() {
    for (enters, expected) in [(55, vec![Broken::TwoHolders]), (61, vec![])] {
        let mut script = first(40);
        inherits(&mut script, 20, 41, "a/2", 8);
        releases(&mut script, 60, "a/2", 8);
        script.asks(5, "b", None);
        script.granted(enters, "b", 10, 340).releases(100, "b", 10);
        assert_eq!(found(&script), expected, "{enters}");
    }
}

/// The second of the chain has not even asked when the store is made to forget.
fn forgotten(effect: Effect) -> Script {
    let mut script = first(40);
    script.fault(10, 11, "store", "released by force", effect).asks(12, "b", None);
    script.granted(15, "b", 100, 305).holds(200, "b", 100, 495).releases(450, "b", 100);
    inherits(&mut script, 20, 41, "a/2", 8);
    script
}

#[test]
fn forgotten_chain_is_excused_until_next_contact() {
    use Broken::{LostEarly, TokenDidNotRise, TwoHolders};
    for (effect, expected) in [
        (Effect::Forgets { name: Some("stock".into()) }, vec![]),
        (Effect::None, vec![TwoHolders, TwoHolders, TokenDidNotRise, LostEarly]),
    ] {
        let mut script = forgotten(effect);
        releases(&mut script, 120, "a/2", 8);
        let (claim, token, outcome) = (claim(7), 8, Outcome::Lost("forgotten".into()));
        script.note(130, "a/2", What::Released { claim, token, outcome });
        assert_eq!(found(&script), expected);
    }
    // Not told by a renewal: a lease after it was forgotten, nothing excuses it.
    let mut script = forgotten(Effect::Forgets { name: None });
    script.note(130, "a/2", What::Holds { claim: claim(7), token: 8, until: at(420) });
    releases(&mut script, 400, "a/2", 8);
    assert_eq!(found(&script), [TwoHolders]);
}

#[test]
fn chain_length_is_limited() {
    for (successors, expected) in [(SUCCESSORS, vec![]), (SUCCESSORS + 1, vec![Broken::WrongSuccessor])] {
        let mut script = first(10);
        for number in 1..=u64::from(successors) {
            inherits(&mut script, 2, 10 * number + 1, "a/2", 7 + number);
            releases(&mut script, 10 * number + 10, "a/2", 7 + number);
        }
        assert_eq!(found(&script), expected, "{successors}");
        // More than 32 successors are not allowed.
        assert_eq!(Judge::new().judge(&script.history()), []);
    }
}

/// The request was sent before 1 ms; a third of the lease is 100 ms, and clocks are read to within 1 ms.
#[test]
fn handover_after_third_of_lease_is_caught() {
    for (released, expected) in [(101, vec![]), (102, vec![Broken::WrongSuccessor])] {
        let mut script = first(released);
        inherits(&mut script, 20, 110, "a/2", 8);
        releases(&mut script, 120, "a/2", 8);
        assert_eq!(found(&script), expected, "{released}");
    }
}

/// The labels of these clients differ.
#[test]
fn inheritance_needs_equal_locks() {
    let mut script = first(40);
    inherits(&mut script, 20, 41, "b/1", 8);
    releases(&mut script, 60, "b/1", 8);
    assert_eq!(found(&script), [Broken::WrongSuccessor]);
}

#[test]
fn answer_to_hold_is_not_its_successors() {
    let mut script = first(40);
    inherits(&mut script, 20, 41, "a/2", 8);
    let (claim, token, outcome) = (claim(7), 7, Outcome::Lost("expired".into()));
    script.note(42, "a/1", What::Released { claim, token, outcome });
    releases(&mut script, 60, "a/2", 8);
    let violations = Judge::new().allowing(Duration::ZERO).judge(&script.history());
    let [violation] = &violations[..] else { panic!("{violations:?}") };
    assert_eq!((violation.broken, &*violation.clients[0]), (Broken::LostEarly, "a/1"));
}
