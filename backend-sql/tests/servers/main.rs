//! Locks in real database servers: each case on each database, with each strategy. Several backends on one server are what
//! several processes are.
//!
//! `cargo test -p tenure-sql --all-features --test servers -- postgres::faults`. A case has a table of its own. Where a server
//! cannot be had, its cases are listed as ignored, with the reason; `TENURE_TEST_REQUIRE=1` makes that a failure.

mod bell;
mod blocked;
mod case;
mod distance;
mod encodings;
mod errors;
mod fair;
mod faults;
mod foreign;
mod full;
mod galera;
mod leases;
mod lookalikes;
mod marks;
mod mysql;
mod notes;
mod people;
mod pooler;
mod postgres;
mod row_locks;
mod sharing;
mod store;
mod table;
mod tls;
mod together;
mod transactions;
mod turns;
mod twice;

use case::{Case, Lane};
use libtest_mimic::Arguments;
use std::{process::ExitCode, sync::Arc, time::Duration};
use store::Store;
use table::Table;
use tenure_core::{Attempt, Claim, ClaimId, Grant, HolderInfo, LossCause, Mode, Name, Release, Standing};
use tenure_testbed::Kind;

const LEASE: Duration = Duration::from_secs(30);
/// What surely comes has come by then.
const LONG: Duration = Duration::from_secs(30);
const RELEASED: Release = Release::Released { awaited: false };

fn main() -> ExitCode {
    let groups = [
        bell::CASES,
        blocked::CASES,
        distance::CASES,
        encodings::CASES,
        errors::CASES,
        fair::CASES,
        faults::CASES,
        foreign::CASES,
        full::CASES,
        galera::CASES,
        leases::CASES,
        lookalikes::CASES,
        marks::CASES,
        mysql::CASES,
        notes::CASES,
        people::CASES,
        pooler::CASES,
        postgres::CASES,
        row_locks::CASES,
        sharing::CASES,
        tls::CASES,
        together::CASES,
        transactions::CASES,
        twice::CASES,
    ];
    let cases = || groups.into_iter().flatten();
    // Those that hurt their server come last, of all servers in turn: each waits most of the time.
    let (alone, together) = cases().partition::<Vec<_>, _>(|case| case.alone);
    let together = Lane::all().flat_map(|lane| together.iter().filter_map(move |case| lane.trial(case)));
    let alone = alone.iter().flat_map(|case| Lane::all().filter_map(|lane| lane.trial(case)));
    libtest_mimic::run(&Arguments::from_args(), together.chain(alone).collect()).exit_code()
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Waits until `is_so`.
async fn until(is_so: impl AsyncFn() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(look).await;
}

/// What must come about, and does so soon.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.expect("it did not come about")
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn claim(text: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: name(text),
        mode: Mode::Exclusive,
        lease: LEASE,
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

fn waiting(text: &str) -> Claim {
    Claim { waits: true, ..claim(text) }
}

async fn granted(store: &Store, claim: &Claim) -> Grant {
    match store.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{busy:?}"),
    }
}

async fn busy(store: &Store, claim: &Claim) -> Option<Duration> {
    match store.try_acquire(claim).await.unwrap() {
        Attempt::Busy { expires_in } => expires_in,
        granted @ Attempt::Granted(_) => panic!("{granted:?}"),
    }
}

/// Why a row lock was lost, which it must be soon.
async fn lost(grant: &Grant) -> LossCause {
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    soon(liveness.ended()).await
}
