//! The conformance suite on every store of this crate: `cargo test --test conformance -- sqlite::waiting`.

#[cfg(feature = "memory")]
mod memory;
mod servers;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::process::ExitCode;
#[cfg(feature = "memory")]
use tenure_conformance::Simulation;
use tenure_conformance::Subjects;

/// The groups that a queue in lease rows changes. The rest is shown without one.
#[allow(dead_code, reason = "not every store has such a queue")]
const OF_A_QUEUE: &[&str] = &[
    "store",
    "oracle",
    "exclusion",
    "waiting",
    "closing",
    "readers",
    "permits",
    "several",
    "people",
    "faults",
];

/// Returns these groups, after checking that each has cases: the suite would leave out a misspelt one in silence.
#[allow(dead_code, reason = "not every store shows only some")]
fn groups(names: &'static [&'static str]) -> &'static [&'static str] {
    let cases = tenure_conformance::cases();
    for name in names {
        assert!(cases.iter().any(|case| case.group == *name), "there is no group {name:?}");
    }
    names
}

fn main() -> ExitCode {
    tenure_conformance::main(|| async { subjects() })
}

#[allow(unused_mut, reason = "without any store there is nothing to add")]
fn subjects() -> Subjects {
    let mut subjects = servers::of_this_build();
    #[cfg(feature = "memory")]
    {
        subjects = subjects.with(memory::InMemory::default());
        // Where a store has no queue, the policy takes other ways.
        subjects = subjects.with(Simulation::new().polled());
        // And where it has sessions instead of leases.
        subjects = subjects.with(Simulation::new().with_sessions());
        // And where it tells no time, but dates what is written.
        subjects = subjects.with(Simulation::new().dated());
    }
    #[cfg(feature = "sqlite")]
    {
        subjects = subjects.with(sqlite::InFile::new());
        subjects = subjects.with(sqlite::InFile::fair(groups(OF_A_QUEUE)));
    }
    subjects
}
