//! One name that many tasks of one process want, beside two bare statements of a task that is alone.

use crate::{
    one_name,
    place::{Place, Way},
    pool::Pool,
};
use tenure_core::ClaimId;

pub(crate) async fn measure(place: &Place) {
    for way in Way::all(place.kind) {
        let relaxed = match way {
            Way::LeaseRow => false,
            Way::LeaseRowRelaxed => true,
            // Their tokens cannot be reserved.
            Way::RowLock | Way::RowLockRelaxed | Way::Advisory => continue,
        };
        // As many connections as tenure has.
        let (pool, locks) = (Pool::connect(&place.url(), relaxed, 2).await, place.locks(way).await);
        one_name::measure(&format!("{}, {}", place.kind, way.name()), &locks, async || {
            pool.cycle("one name", &ClaimId::new().to_string()).await;
        })
        .await;
        locks.close().await;
    }
}
