//! Locks in real database servers: each case on each database, with each strategy. Several backends on one server are what
//! several processes are.
//!
//! `cargo test -p tenure-sql --all-features --test servers -- postgres::faults`. A case has a table of its own. Where a server
//! cannot be had, its cases are listed as ignored, with the reason; `TENURE_TEST_REQUIRE=1` makes that a failure.

mod advisory;
mod bell;
mod blocked;
mod case;
#[path = "../common/claims.rs"]
mod claims;
mod encodings;
mod errors;
mod faults;
mod foreign;
#[path = "../common/format.rs"]
mod format;
mod full;
mod galera;
#[path = "../common/lease_rows.rs"]
mod lease_rows;
mod leases;
mod lookalikes;
mod mysql;
mod notes;
mod people;
mod pooler;
mod postgres;
mod row_locks;
mod stopped;
mod store;
mod table;
mod tls;
mod together;
mod transactions;

use case::{Case, Lane};
use claims::{
    AWAITED, LEASE, RELEASED, busy, claim, granted, name, permits, reader, said, soon, until, waiting,
};
use libtest_mimic::Arguments;
use std::{process::ExitCode, time::Duration};
use store::Store;
use table::Table;
use tenure_core::{Attempt, Backend, Claim, Grant, HolderInfo, LossCause, Mode, Release, Standing};
use tenure_testbed::Kind;

/// Where the server may take as long as it likes.
const LONG: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    let groups = [
        advisory::CASES,
        bell::CASES,
        blocked::CASES,
        encodings::CASES,
        errors::CASES,
        faults::CASES,
        foreign::CASES,
        full::CASES,
        galera::CASES,
        leases::CASES,
        lookalikes::CASES,
        mysql::CASES,
        notes::CASES,
        people::CASES,
        pooler::CASES,
        postgres::CASES,
        row_locks::CASES,
        tls::CASES,
        together::CASES,
        transactions::CASES,
    ];
    let cases = || groups.into_iter().flatten();
    // Those that hurt their server come last, of all servers in turn: each waits most of the time.
    let (alone, together) = cases().partition::<Vec<_>, _>(|case| case.alone);
    let together = Lane::all().flat_map(|lane| together.iter().filter_map(move |case| lane.trial(case)));
    let alone = alone.iter().flat_map(|case| Lane::all().filter_map(|lane| lane.trial(case)));
    libtest_mimic::run(&Arguments::from_args(), together.chain(alone).collect()).exit_code()
}

/// Why a row lock was lost, which it must be soon.
async fn lost(grant: &Grant) -> LossCause {
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    soon(liveness.ended()).await
}

/// Waits for the loss of a grant that was released by force. Its holder is told at once, and of the cause if it learns
/// that soon. A release waits until the cause is known.
async fn lost_by_force(store: &Store, grant: &Grant) {
    let cause = lost(grant).await;
    assert!([LossCause::Forced, LossCause::SessionEnded].contains(&cause), "{cause:?}");
    assert_eq!(soon(store.release(grant)).await.unwrap(), Release::Lost(LossCause::Forced));
}
