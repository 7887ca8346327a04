//! The cost of keeping many leases.

use crate::{
    place::{Place, Way},
    support::record,
};
use std::time::Duration;

const LEASES: u32 = 1_000;
const LEASE: Duration = Duration::from_secs(15);
const PERIODS: u32 = 3;

pub(crate) async fn measure(place: &Place) {
    let locks = place.locks(Way::LeaseRow).await;
    let mut guards = Vec::new();
    for number in 0..LEASES {
        let lock = locks.lock(format!("lease {number}")).lease(LEASE);
        guards.push(lock.acquire().await.expect("it is free"));
    }
    let (own, before) = (place.counting().await, place.statements().await);
    tokio::time::sleep(LEASE / 3 * PERIODS).await;
    let statements = place.statements().await - before - own;
    let what = format!("{}: {LEASES} leases of {LEASE:?}, kept for {PERIODS} thirds of a lease", place.kind);
    println!("{what}");
    let each = statements * 1000 / i64::from(LEASES * PERIODS);
    println!("  {statements} statements: {each} for 1,000 renewals");
    record(&what, &each.to_string(), "statements for 1,000 renewals", &[]);
    assert!(guards.iter().all(|guard| guard.is_held()), "a lease was lost");
    for guard in guards {
        guard.release().await.expect("it was held");
    }
    locks.close().await;
}
