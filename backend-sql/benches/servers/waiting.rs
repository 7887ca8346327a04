//! The load on the server of many tasks that wait for one name.

use crate::{
    place::{Place, Way},
    support::record,
};
use std::time::Duration;
use tokio::task::JoinSet;

const TASKS: u32 = 100;
const TIME: Duration = Duration::from_secs(20);

pub(crate) async fn measure(place: &Place) {
    for way in [Way::LeaseRow, Way::RowLock] {
        let (holder, waiting) = (place.locks(way).await, place.locks(way).await);
        // Far from its next renewal.
        let guard = holder.lock("held").lease(Duration::from_mins(10)).acquire().await.expect("it is free");
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let lock = waiting.lock("held");
            tasks.spawn(async move { drop(lock.acquire().await) });
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (own, before) = (place.counting().await, place.statements().await);
        tokio::time::sleep(TIME).await;
        let statements = place.statements().await - before - own;
        let what =
            format!("{}: {TASKS} tasks wait in one process for one held name, {}", place.kind, way.name());
        println!("{what}");
        println!("  {statements} statements in {TIME:?}");
        record(&what, &statements.to_string(), &format!("statements in {TIME:?}"), &[]);
        tasks.shutdown().await;
        guard.release().await.expect("it was held");
        waiting.close().await;
        holder.close().await;
    }
}
