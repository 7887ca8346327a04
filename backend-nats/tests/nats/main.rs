//! The store on a real server: what the conformance suite cannot see from above.

mod bucket;
mod page;
mod rights;
mod server;
mod tls;

use tenure_testbed::claims::{RELEASED, claim, granted, in_time};
