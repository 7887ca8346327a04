//! The fault run finds unsafe stores, and nothing in safe ones.

mod careless;
mod schedule;

use careless::{Careless, Flaw};
use std::{sync::Arc, time::Duration};
use tenure_conformance::{
    BoxError, Subject, async_trait,
    faults::{Options, Outcome, run},
    judge::{Broken, Judge},
};
use tenure_core::{Backend, Memory};

struct InMemory(Memory);

#[async_trait]
impl Subject for InMemory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// Short leases, so that much happens; and patience, for busy machines.
async fn faults(subject: Arc<dyn Subject>, length: Duration) -> Outcome {
    let options = Options::seeded(7).lasting(length).in_rounds_of(Duration::from_secs(3));
    let mut options = options.with_lease(Duration::from_millis(300));
    options.clients = 6;
    run(&subject, &options, |_, _| {}).await.expect("a run")
}

fn shown(outcome: &Outcome) -> String {
    let violation = Judge::smallest(&outcome.violations);
    violation.map_or_else(
        || "nothing broken".to_owned(),
        |violation| violation.timeline(&outcome.history).to_string(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn safe_stores_pass() {
    for subject in [Careless::with(Flaw::None), Arc::new(InMemory(Memory::new()))] {
        let outcome = faults(subject, Duration::from_secs(5)).await;
        println!("{}", outcome.figures);
        assert!(outcome.violations.is_empty(), "{}", shown(&outcome));
        let figures = &outcome.figures;
        assert_eq!((figures.rounds, figures.violations), (2, 0), "{figures}");
        assert!(figures.grants > 50 && figures.losses > 0 && figures.injected() > 5, "{figures}");
    }
}

/// Within one minute, says the issue; a round takes a few seconds.
async fn is_caught(flaw: Flaw, broken: Broken) {
    let outcome = faults(Careless::with(flaw), Duration::from_secs(45)).await;
    let timeline = shown(&outcome);
    println!("{}\n{timeline}", outcome.figures);
    assert!(outcome.violations.iter().any(|violation| violation.broken == broken), "{flaw:?}: {timeline}");
    assert!(timeline.contains("from here on the contract is broken"), "{timeline}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_claim_check_is_caught() {
    is_caught(Flaw::NoClaimCheckAtRelease, Broken::TwoHolders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_revives_is_caught() {
    is_caught(Flaw::RenewalRevives, Broken::LostEarly).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_do_not_rise_are_caught() {
    is_caught(Flaw::NoTokens, Broken::TokenDidNotRise).await;
}
