//! The algorithm of `redlock://`, as a model of which every state is visited.
//!
//! Three nodes, two clients, one name. A step is anything that can happen next: a client begins an attempt, gives it up,
//! goes on to the second round, believes in its grant, renews or releases it; a node carries a request out; a key's lease
//! ends; time passes for a client. A request that was sent may be carried out at any later time, any number of times, or
//! never, and its answer may be lost: so messages are delayed, reordered, duplicated and lost, clients and nodes crash
//! and go on, in every combination. A node that restarts with its data is one that was slow.
//!
//! Nodes' clocks differ, so that the greatest token is not everywhere the same.

mod rules;
mod search;
mod world;

use rules::{Flaw, Rules, Violation};
use search::{Found, search};

/// No steps lead to a violation.
fn holds(rules: Rules) {
    let Found { states, violation } = search(&rules);
    eprintln!("{states} states");
    if let Some((violation, steps)) = violation {
        panic!("{violation:?} after:\n{}", steps.join("\n"));
    }
    assert!(states > 10_000, "only {states} states: the model is not what it is meant to be");
}

/// A rule is left out, and the search finds what it is good for.
fn breaks(rules: Rules, expected: Violation) {
    let Found { states, violation } = search(&rules);
    let Some((violation, steps)) = violation else { panic!("no violation in {states} states: {rules:?}") };
    eprintln!("{violation:?} in {} steps:\n{}", steps.len(), steps.join("\n"));
    assert_eq!(violation, expected, "after:\n{}", steps.join("\n"));
}

#[test]
fn never_two_holders_and_tokens_rise_from_grant_to_grant() {
    holds(Rules { renewals: 1, ..Rules::default() });
}

#[test]
fn nor_when_an_attempt_follows_another() {
    holds(Rules { attempts: [2, 1], ends: false, ..Rules::default() });
}

/// Without any assumption on clocks two clients may believe they hold the lock. Their tokens still differ, and an
/// attempt that began after a grant gets the greater.
#[test]
fn tokens_rise_whatever_the_clocks_do() {
    holds(Rules { clocks_agree: false, ..Rules::default() });
}

#[test]
fn without_the_second_round_a_later_grant_can_have_a_smaller_token() {
    breaks(Rules { flaw: Some(Flaw::NoSecondRound), ..Rules::default() }, Violation::TokenNotGreater);
}

#[test]
fn raising_where_the_key_is_gone_can_give_a_token_out_twice() {
    breaks(
        Rules { flaw: Some(Flaw::RaisesAnywhere), clocks_agree: false, ..Rules::default() },
        Violation::TokenNotGreater,
    );
}

#[test]
fn less_than_a_majority_lets_two_in() {
    breaks(Rules { majority: 1, ..Rules::default() }, Violation::TwoHolders);
}

#[test]
fn a_late_withdrawal_that_ends_a_later_attempt_lets_two_in() {
    breaks(
        Rules { flaw: Some(Flaw::UndoesAnyAttempt), attempts: [2, 1], ends: false, ..Rules::default() },
        Violation::TwoHolders,
    );
}

#[test]
fn a_node_that_restarts_empty_at_once_lets_two_in() {
    breaks(Rules { restarts_empty: 1, ..Rules::default() }, Violation::TwoHolders);
}

#[test]
fn clocks_that_run_apart_let_two_in() {
    breaks(Rules { clocks_agree: false, exclusion_anyway: true, ..Rules::default() }, Violation::TwoHolders);
}
