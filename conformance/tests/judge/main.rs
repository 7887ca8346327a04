//! The judge finds each violation, and nothing else.

mod chains;
mod company;
mod drawing;
mod generated;
mod offers;
mod script;
mod texts;

use script::{Script, at, claim};
use std::time::Duration;
use tenure_conformance::judge::{Broken, Effect, Judge, Outcome, What};

/// The findings of a judge that allows for 100 ms.
fn found(script: &Script) -> Vec<Broken> {
    let judge = Judge::new().allowing(Duration::from_millis(100));
    judge.judge(&script.history()).iter().map(|violation| violation.broken).collect()
}

/// Two holds, one after the other, as they should be.
fn in_turn() -> Script {
    let mut script = Script::default();
    script.asks(0, "a", None);
    script.granted(1, "a", 7, 290);
    script.asks(2, "b", None);
    script.reads(3, "a", 7, 0).writes(4, "a", 7, 0).releases(100, "a", 7);
    script.granted(101, "b", 8, 390).reads(102, "b", 8, 1).writes(103, "b", 8, 1).releases(200, "b", 8);
    script
}

#[test]
fn belief_ends_with_release_loss_deadline_or_death() {
    for end in ["release", "loss", "deadline", "death"] {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290);
        let meets = if end == "deadline" { 290 } else { 50 };
        match end {
            "release" => script.releases(50, "a", 7),
            "loss" => {
                script.note(50, "a", What::Lost { claim: claim(7), token: 7, cause: "max_hold".into() })
            }
            "death" => script.fault(50, 51, "a", "killed", Effect::Kills),
            _ => script.lost(295, "a", 7),
        };
        script.asks(2, "b", None);
        script.granted(meets, "b", 8, 390).releases(meets + 60, "b", 8);
        assert_eq!(found(&script), [], "{end}");
        let mut early = script.clone();
        early.asks(2, "c", None);
        early.granted(meets - 1, "c", 6, 48).releases(meets, "c", 6);
        assert!(found(&early).contains(&Broken::TokenDidNotRise), "{end}");
    }
}

#[test]
fn release_of_an_overtaken_grant_is_an_error() {
    let lost = || Outcome::Lost("taken over".into());
    for (granted, outcome, expected) in [
        (310, Outcome::Released, vec![Broken::ReleasedLost]),
        (310, lost(), vec![]),
        (310, Outcome::Failed("unavailable".into()), vec![]),
        // After it was sent.
        (330, Outcome::Released, vec![]),
    ] {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290).lost(290, "a", 7).asks(2, "b", None);
        script.releases(320, "a", 7).granted(granted, "b", 8, 600).releases(400, "b", 8);
        script.note(340, "a", What::Released { claim: claim(7), token: 7, outcome: outcome.clone() });
        assert_eq!(found(&script), expected, "{granted}, {outcome:?}");
    }
}

#[test]
fn release_of_a_lease_that_ended_early_must_notice_a_present_holder() {
    for (leaves, expected) in [(60, vec![]), (400, vec![Broken::ReleasedLost])] {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290).fault(10, 11, "store", "set the clock ahead", Effect::EndsLeases);
        script.asks(20, "b", None);
        script.granted(30, "b", 8, 600).releases(70, "a", 7).releases(leaves, "b", 8);
        script.note(80, "a", What::Released { claim: claim(7), token: 7, outcome: Outcome::Released });
        assert_eq!(found(&script), expected, "{leaves}");
    }
}

#[test]
fn forgetful_store_is_excused_for_lease() {
    for (effect, meets, renewed, expected) in [
        (Effect::Forgets { name: None }, 50, 290, vec![]),
        (Effect::EndsLeases, 50, 290, vec![]),
        (Effect::Forgets { name: Some("stock".into()) }, 50, 290, vec![]),
        (Effect::Forgets { name: Some("other".into()) }, 50, 290, vec![Broken::TwoHolders]),
        (Effect::None, 50, 290, vec![Broken::TwoHolders]),
        // Before it happened …
        (Effect::Forgets { name: None }, 30, 290, vec![Broken::TwoHolders]),
        // … and a lease after it: a forgotten grant was renewed.
        (Effect::Forgets { name: None }, 50, 700, vec![Broken::TwoHolders]),
    ] {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290).fault(40, 45, "store", "wiped", effect.clone()).asks(2, "b", None);
        script.granted(meets, "b", 8, 340).holds(120, "b", 8, 900);
        script.holds(150, "a", 7, renewed).lost(renewed, "a", 7).releases(800, "b", 8);
        assert_eq!(found(&script), expected, "{effect:?}, met at {meets}, renewed to {renewed}");
    }
}

#[test]
fn unplanned_failover_is_excused() {
    for (failed_over, expected) in [(true, vec![]), (false, vec![Broken::TwoHolders])] {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290).asks(2, "b", None);
        script.note(40, "store", What::Fault { fault: 1, kind: "cut".into(), effect: Effect::None });
        script.granted(50, "b", 8, 340).lost(290, "a", 7).releases(330, "b", 8);
        if failed_over {
            script.note(400, "store", What::FailedOver { fault: 1 });
        }
        script.note(401, "store", What::Healed { fault: 1 });
        assert_eq!(found(&script), expected, "{failed_over}");
    }
}

/// Until it is a replica, a deposed master confirms the releases of what it granted.
#[test]
fn release_at_deposed_master_is_excused() {
    for (healed, failed_over, expected) in [
        (300, true, vec![]),
        (300, false, vec![Broken::ReleasedLost]),
        // The new master's grant came after the fault.
        (45, true, vec![Broken::ReleasedLost]),
    ] {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290).asks(2, "b", None);
        let effect = Effect::Forgets { name: None };
        script.note(40, "store", What::Fault { fault: 1, kind: "kill one".into(), effect });
        if failed_over {
            script.note(44, "store", What::FailedOver { fault: 1 });
        }
        if healed < 50 {
            script.note(healed, "store", What::Healed { fault: 1 });
        }
        script.granted(50, "b", 8, 340).releases(60, "a", 7);
        script.note(61, "a", What::Released { claim: claim(7), token: 7, outcome: Outcome::Released });
        script.releases(330, "b", 8);
        if healed > 50 {
            script.note(340, "store", What::Healed { fault: 1 });
        }
        assert_eq!(found(&script), expected, "healed at {healed}, failed over: {failed_over}");
    }
}

#[test]
fn falling_token_is_never_excused() {
    for token in [6, 7] {
        let mut script = in_turn();
        let call = script.asks(210, "a", None);
        script.granted_as(211, "a", call, "another claim".into(), token, 500);
        script.note(230, "a", What::Releases { claim: "another claim".into(), token });
        assert_eq!(found(&script), [Broken::TokenDidNotRise], "{token}");
        // Also when the store was wiped: this one was asked for when the others were over.
        script.fault(205, 206, "store", "wiped", Effect::Forgets { name: None });
        assert_eq!(found(&script), [Broken::TokenDidNotRise], "{token}");
    }
}

#[test]
fn token_order_follows_store() {
    // Frozen between the grant and its note: the note is late, the token is an early one.
    let mut script = Script::default();
    let a = script.asks(0, "a", None);
    script.fault(1, 400, "a", "frozen", Effect::Stops).asks(2, "b", None);
    script.granted(310, "b", 8, 600).releases(320, "b", 8);
    script.granted_as(400, "a", a, claim(7), 7, 290).lost(401, "a", 7);
    assert_eq!(found(&script), []);
    // Granted, forgotten, and only then heard of.
    let mut script = Script::default();
    let a = script.asks(0, "a", None);
    script.fault(5, 6, "store", "wiped", Effect::Forgets { name: None }).asks(2, "b", None);
    script.granted(10, "b", 8, 300).releases(20, "b", 8);
    script.granted_as(30, "a", a, claim(7), 7, 290).lost(290, "a", 7);
    assert_eq!(found(&script), []);
}

#[test]
fn overtaken_holder_in_resource_is_caught() {
    let mut script = in_turn();
    script.reads(210, "a", 7, 2);
    assert_eq!(found(&script), [Broken::StaleAccess]);
    let mut script = in_turn();
    script.note(210, "a", What::Refused { name: "stock".into(), token: 7, greatest: 8 });
    assert_eq!(found(&script), []);
    let mut script = in_turn();
    script.reads(210, "b", 8, 2).writes(212, "b", 8, 2).writes(213, "b", 8, 2);
    assert_eq!(found(&script), [Broken::LostUpdate]);
}

#[test]
fn endless_wait_is_caught() {
    // In time, a little late, too late, never.
    for (ends, expected) in [(Some(300), 0), (Some(399), 0), (Some(402), 1), (None, 1)] {
        let mut script = in_turn();
        let call = script.asks(100, "c", Some(300));
        if let Some(ends) = ends {
            script.note(ends, "c", What::Ended { call, why: "timeout".into() });
        }
        script.note(500, "store", What::Over);
        assert_eq!(found(&script), vec![Broken::WaiterHung; expected], "{ends:?}");
    }
    // A wait without an end is over when all is over, or when its locks are closed.
    let mut script = in_turn();
    let call = script.asks(100, "c/1", None);
    assert_eq!(found(&script), []);
    let mut over = script.clone();
    over.note(500, "store", What::Over);
    assert_eq!(found(&over), [Broken::WaiterHung]);
    script.note(300, "c", What::Closes).note(301, "c", What::Closed).note(500, "store", What::Over);
    assert_eq!(found(&script), [Broken::WaiterHung]);
    script.note(390, "c/1", What::Ended { call, why: "closed".into() });
    assert_eq!(found(&script), []);
    // A dead client waits for nothing, and a frozen one cannot end.
    for (effect, to) in [(Effect::Kills, 301), (Effect::Stops, 600)] {
        let mut script = in_turn();
        let call = script.asks(100, "c", Some(300));
        script.fault(250, to, "c", "hurt", effect.clone());
        if effect == Effect::Stops {
            script.note(650, "c", What::Ended { call, why: "timeout".into() });
        }
        script.note(900, "store", What::Over);
        assert_eq!(found(&script), [], "{effect:?}");
    }
}

#[test]
fn loss_after_deadline_is_caught() {
    for (lost, frozen_to, expected) in [
        (Some(295), 0, 0),
        (Some(380), 0, 0),
        (Some(395), 0, 1),
        (Some(695), 600, 0),
        (Some(710), 600, 1),
        (None, 0, 1),
    ] {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290);
        if frozen_to > 0 {
            script.fault(200, frozen_to, "a", "frozen", Effect::Stops);
        }
        if let Some(lost) = lost {
            script.lost(lost, "a", 7).releases(lost + 1, "a", 7);
        }
        script.note(1000, "store", What::Over);
        assert_eq!(found(&script), vec![Broken::LossLate; expected], "{lost:?} {frozen_to}");
    }
}

/// The time is from before the guard was asked: there is nothing to allow for.
#[test]
fn guard_held_past_deadline_is_never_excused() {
    for (asked, expected) in [(294, 0), (296, 0), (297, 1), (400, 1)] {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290).holds(asked, "a", 7, 295).lost(asked + 1, "a", 7);
        assert_eq!(found(&script), vec![Broken::LossLate; expected], "{asked}");
        // Even if a client stood still meanwhile.
        script.fault(290, 500, "a", "frozen", Effect::Stops);
        assert_eq!(found(&script), vec![Broken::LossLate; expected], "{asked}");
    }
}

#[test]
fn grant_ended_before_lease_is_caught() {
    let told = |cause: &str, by_release: bool, effect| {
        let mut script = Script::default();
        script.asks(0, "a", None);
        script.granted(1, "a", 7, 290).fault(40, 41, "store", "hurt", effect);
        let (claim, token, cause) = (claim(7), 7, cause.to_owned());
        if by_release {
            let outcome = Outcome::Lost(cause);
            script.releases(50, "a", 7).note(60, "a", What::Released { claim, token, outcome });
        } else {
            script.note(60, "a", What::Lost { claim, token, cause }).releases(61, "a", 7);
        }
        found(&script)
    };
    for by_release in [false, true] {
        assert_eq!(told("taken_over", by_release, Effect::None), [Broken::LostEarly]);
        assert_eq!(told("expired", by_release, Effect::None), [Broken::LostEarly]);
        assert_eq!(told("expired", by_release, Effect::Forgets { name: None }), []);
        assert_eq!(told("session_ended", by_release, Effect::None), []);
        assert_eq!(told("forced", by_release, Effect::None), []);
    }
    let mut script = Script::default();
    script.asks(0, "a", None);
    script.granted(1, "a", 7, 290).releases(50, "a", 7);
    let (claim, token, outcome) = (claim(7), 7, Outcome::Lost("expired".into()));
    script.note(300, "a", What::Released { claim, token, outcome });
    assert_eq!(found(&script), []);
}

#[test]
fn endless_close_is_caught() {
    let mut script = in_turn();
    script.note(210, "a", What::Closes).note(220, "b", What::Closes).note(230, "a", What::Closed);
    assert_eq!(found(&script), []);
    script.note(900, "store", What::Over);
    assert_eq!(found(&script), [Broken::CloseHung]);
    script.fault(300, 301, "b", "killed", Effect::Kills);
    assert_eq!(found(&script), []);
}

#[test]
fn smallest_violation_is_first() {
    let mut script = in_turn();
    script.asks(205, "a", None);
    script.granted(210, "a", 9, 500).asks(211, "b", None);
    script.granted(300, "b", 10, 590).asks(302, "c", None);
    script.granted(495, "c", 11, 790);
    script.lost(500, "a", 9).releases(510, "b", 10).releases(520, "c", 11);
    let violations = Judge::new().judge(&script.history());
    assert_eq!(violations.len(), 3);
    let smallest = Judge::smallest(&violations).unwrap();
    assert_eq!((&*smallest.clients[0], &*smallest.clients[1], smallest.from), ("b", "c", at(495)));
}

#[test]
fn lock_left_held_is_leak() {
    let mut script = in_turn();
    script.note(900, "store", What::Over);
    script.note(1500, "store", What::Leaked { name: "stock".into(), holders: "b".into() });
    assert_eq!(found(&script), [Broken::Leaked]);
    let violation = &Judge::new().judge(&script.history())[0];
    assert_eq!((&*violation.clients[0], violation.from), ("b", at(200)));
}

#[test]
fn latch_counts_each_party_once() {
    // Of three parties two are counted for certain, and the third is in doubt.
    for (missing, expected) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        let mut script = Script::default();
        let (name, since) = ("gate".to_owned(), at(0));
        script.note(50, "a", What::Looked { name, since, of: 3, begun: 3, sure: 2, missing });
        assert_eq!(found(&script), vec![Broken::LatchMiscounted; expected], "{missing}");
        script.fault(10, 11, "store", "set the clock ahead", Effect::EndsLeases);
        assert_eq!(found(&script), vec![Broken::LatchMiscounted; expected], "{missing}");
        // A store that was wiped has forgotten the counts, and still cannot count a party that has not come.
        script.fault(10, 11, "store", "wiped", Effect::Forgets { name: None });
        assert_eq!(found(&script), [], "{missing}");
        let (name, since) = ("other gate".to_owned(), at(20));
        script.note(50, "a", What::Looked { name, since, of: 3, begun: 1, sure: 1, missing: 1 });
        assert_eq!(found(&script), [Broken::LatchMiscounted], "{missing}");
    }
}
