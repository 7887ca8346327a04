//! The cases, one file a group; `docs/design.md` has the clauses that they show.

mod cancelling;
mod contention;
mod exclusion;
mod faults;
mod lease;
mod loss;
mod names;
mod people;
mod reentrancy;
mod release;
mod running;
mod store;
mod tokens;
mod waiting;

use crate::Case;

/// All cases, in the order of the contract; those that disturb the store itself come last.
#[must_use]
pub fn all() -> Vec<Case> {
    let groups = [
        store::CASES,
        exclusion::CASES,
        names::CASES,
        waiting::CASES,
        cancelling::CASES,
        lease::CASES,
        loss::CASES,
        running::CASES,
        tokens::CASES,
        reentrancy::CASES,
        release::CASES,
        people::CASES,
        faults::CASES,
    ];
    let (alone, together): (Vec<Case>, Vec<Case>) =
        groups.into_iter().flatten().copied().partition(|case| case.alone);
    together.into_iter().chain(alone).collect()
}
