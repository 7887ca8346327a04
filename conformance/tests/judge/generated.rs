//! Histories of a store that keeps the contract, drawn at random; and each with one thing broken.

use crate::script::{LEASE, NAME, Script, at, claim};
use proptest::prelude::*;
use std::time::Duration;
use tenure_conformance::judge::{Broken, Effect, Judge, What};

/// How one hold goes.
#[derive(Clone, Copy, Debug)]
struct Turn {
    client: u8,
    /// How long before the grant it was asked for.
    asked_before: u64,
    /// How long the reply took.
    reply: u64,
    renewals: u64,
    end: End,
    /// From the end of the hold in the store to the next grant.
    gap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Released,
    Lost,
    Killed,
    Frozen,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let end = prop_oneof![Just(End::Released), Just(End::Lost), Just(End::Killed), Just(End::Frozen)];
    let turn = (0..4_u8, 0..500_u64, 0..40_u64, 0..4_u64, end, 0..50_u64);
    let turn = turn.prop_map(|(client, asked_before, reply, renewals, end, gap)| Turn {
        client,
        asked_before,
        reply,
        renewals,
        end,
        gap,
    });
    prop::collection::vec(turn, 2..12)
}

/// A flaw, at a turn that is not the first.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    GrantedEarly(u64),
    TokenRepeated,
    StaleWrite,
    LateLoss(u64),
    ForgottenWaiter,
    GrantedAfterClose,
}

/// The allowance.
const LATE: u64 = 200;

/// A store that keeps the contract, except for the flaw at that turn.
fn play(turns: &[Turn], flaw: Option<(usize, Flaw)>) -> Script {
    let mut script = Script::default();
    let (mut free, mut token, mut value) = (1000, 100, 0);
    let mut believed = 0;
    for (index, turn) in turns.iter().enumerate() {
        let flaw = flaw.and_then(|(at, flaw)| (at == index).then_some(flaw));
        // Each turn is a client of its own, so that the dead stay dead.
        let client = format!("c{index}/{}", turn.client);
        let mut granted = free + turn.reply + 1;
        if let Some(Flaw::GrantedEarly(by)) = flaw {
            granted = believed - by;
        }
        token += 1;
        let mut shown = token;
        let asked = granted.min(free) - turn.asked_before.min(granted.min(free));
        if let Some(Flaw::GrantedAfterClose) = flaw {
            script.note(asked.saturating_sub(2), &client, What::Closes);
            script.note(asked.saturating_sub(1), &client, What::Closed);
        }
        let call = script.asks(asked, &client, None);
        if let Some(Flaw::TokenRepeated) = flaw {
            shown -= 1;
        }
        let sent = granted - 1 - turn.reply;
        let mut until = sent + LEASE - 5;
        // Claims are named after the turn's own token.
        script.granted_as(granted, &client, call, claim(token), shown, until);
        let mut now = granted;
        script.reads(now, &client, shown, value).writes(now, &client, shown, value);
        value += 1;
        if let Some(Flaw::StaleWrite) = flaw {
            script.writes(now + 1, &format!("c{}/1", index - 1), token - 1, value);
            value += 1;
        }
        for _ in 0..turn.renewals {
            now += 100;
            until = now - turn.reply.min(50) + LEASE - 5;
            script.note(now, &client, What::Holds { claim: claim(token), token: shown, until: at(until) });
        }
        let (end, expiry) = (now + 20, until + 6);
        match turn.end {
            End::Released => {
                script.note(end, &client, What::Releases { claim: claim(token), token: shown });
                (believed, free) = (end, end + 1);
            }
            End::Killed => {
                script.fault(end, end, &client, "killed", Effect::Kills);
                (believed, free) = (end, expiry);
            }
            End::Lost | End::Frozen => {
                let mut noticed = until + 1;
                if turn.end == End::Frozen {
                    noticed += 700;
                    script.fault(end, noticed - 1, &client, "frozen", Effect::Stops);
                }
                if let Some(Flaw::LateLoss(by)) = flaw {
                    noticed += LATE + by;
                }
                let cause = "expired".to_owned();
                script.note(noticed, &client, What::Lost { claim: claim(token), token: shown, cause });
                (believed, free) = (until, expiry);
            }
        }
        if let Some(Flaw::ForgottenWaiter) = flaw {
            script.asks(end, "forgotten", Some(end + 100));
        }
        free += turn.gap;
    }
    script.note(free + 5000, "store", What::Over);
    script
}

fn found(turns: &[Turn], flaw: Option<(usize, Flaw)>) -> Vec<Broken> {
    let judge = Judge::new().allowing(Duration::from_millis(LATE));
    let violations = judge.judge(&play(turns, flaw).history());
    assert!(violations.iter().all(|violation| violation.name == NAME && violation.since <= violation.to));
    violations.iter().map(|violation| violation.broken).collect()
}

proptest! {
    #[test]
    fn correct_generated_history_has_no_violation(turns in turns()) {
        prop_assert_eq!(found(&turns, None), []);
    }

    #[test]
    fn generated_flaw_is_found(turns in turns(), place in any::<prop::sample::Index>(), by in 1..19_u64, kind in 0..6) {
        let mut turns = turns;
        let place = 1 + place.index(turns.len() - 1);
        let (flaw, expected) = match kind {
            0 => (Flaw::GrantedEarly(by), Broken::TwoHolders),
            1 => (Flaw::TokenRepeated, Broken::TokenDidNotRise),
            2 => (Flaw::StaleWrite, Broken::StaleAccess),
            3 => (Flaw::LateLoss(by), Broken::LossLate),
            4 => (Flaw::ForgottenWaiter, Broken::WaiterHung),
            _ => (Flaw::GrantedAfterClose, Broken::GrantAfterClose),
        };
        if matches!(flaw, Flaw::LateLoss(_)) {
            turns[place].end = End::Lost;
        }
        if matches!(flaw, Flaw::GrantedEarly(_)) {
            // It has to be a hold at all.
            turns[place].reply = turns[place].reply.min(10);
        }
        let found = found(&turns, Some((place, flaw)));
        prop_assert!(found.contains(&expected), "{:?} at {}: {:?}", flaw, place, found);
        let beside = found.iter().filter(|broken| **broken != expected).collect::<Vec<_>>();
        prop_assert!(beside.is_empty(), "{:?} at {}: also {:?}", flaw, place, beside);
    }
}
