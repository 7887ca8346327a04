//! The store below `Records`: what the conformance suite cannot see from above.

mod bucket;
mod counted;
mod page;
mod price;
mod refusals;
mod waiting;

use tenure_testbed::claims::{RELEASED, claim, granted};
