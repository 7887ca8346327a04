//! The conformance suite on every store of this crate: `cargo test --test conformance -- sqlite::waiting`.

#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::process::ExitCode;
use tenure_conformance::Subjects;

fn main() -> ExitCode {
    tenure_conformance::main(|| async { subjects() })
}

#[allow(unused_mut, reason = "without any store there is nothing to add")]
fn subjects() -> Subjects {
    let mut subjects = Subjects::new();
    #[cfg(feature = "memory")]
    {
        subjects = subjects.with(memory::InMemory::default());
    }
    #[cfg(feature = "sqlite")]
    {
        subjects = subjects.with(sqlite::InFile::new());
    }
    #[cfg(feature = "redis")]
    {
        subjects = subjects.with(redis::OneServer::default());
    }
    subjects
}
