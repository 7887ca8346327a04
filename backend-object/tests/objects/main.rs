//! The store below `Records`: what the conformance suite cannot see from above.

mod bucket;
mod counted;
mod page;
mod price;
mod refusals;
mod waiting;

use std::{sync::Arc, time::Duration};
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, HolderInfo, Mode, Name, Release};
use tenure_object::ObjectBackend;

const RELEASED: Release = Release::Released { awaited: false };

fn claim(text: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: Name::new(text).unwrap(),
        mode: Mode::Exclusive,
        lease: Duration::from_mins(10),
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

async fn granted(backend: &ObjectBackend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{:?} is not free: {busy:?}", claim.name),
    }
}
