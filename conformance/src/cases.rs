//! The cases, one file per group; `docs/contract.md` has the clauses that they prove.

mod cancelling;
mod closing;
mod contention;
mod election;
mod exclusion;
mod fault_run;
mod faults;
mod latch;
mod lease;
mod least;
mod loss;
mod names;
mod oracle;
mod people;
mod permits;
mod readers;
mod record_store;
mod reentrancy;
mod release;
mod running;
mod runtimes;
mod several;
mod store;
mod succession;
mod tokens;
mod unheard;
mod waiting;

use crate::{Case, Form};

/// Returns all cases, in the order of the contract; those that disturb the store come last.
#[must_use]
pub fn all() -> Vec<Case> {
    let groups = [
        record_store::CASES,
        store::CASES,
        oracle::CASES,
        exclusion::CASES,
        names::CASES,
        waiting::CASES,
        cancelling::CASES,
        unheard::CASES,
        lease::CASES,
        least::CASES,
        loss::CASES,
        running::CASES,
        runtimes::CASES,
        tokens::CASES,
        succession::CASES,
        reentrancy::CASES,
        release::CASES,
        closing::CASES,
        people::CASES,
        readers::CASES,
        permits::CASES,
        several::CASES,
        election::CASES,
        latch::CASES,
        faults::CASES,
        faults::clock::CASES,
        fault_run::CASES,
    ];
    // A writer, or the holder of the only permit, excludes others like the holder of a lock.
    let alike = [("exclusion_of_writers", Form::Writer), ("exclusion_by_permit", Form::Permit(1))];
    let alike = alike.into_iter().flat_map(|(group, form)| in_form(exclusion::CASES, group, form));
    // Readers and permits may lose their grants like the holder of a lock, and exclude exclusive claims.
    let beside = [("faults_of_readers", Form::Reader), ("faults_of_permits", Form::Permit(2))];
    let beside = beside.into_iter().flat_map(|(group, form)| in_form(faults::CASES, group, form));
    let mut cases: Vec<Case> = groups.into_iter().flatten().copied().chain(alike).chain(beside).collect();
    cases.sort_by_key(|case| case.alone);
    cases
}

/// Returns those of the cases that depend on the form, in this one.
fn in_form(cases: &[Case], group: &'static str, form: Form) -> impl Iterator<Item = Case> {
    cases.iter().filter(|case| case.shared).map(move |case| case.in_form(group, form))
}
