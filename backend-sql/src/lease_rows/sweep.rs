//! Deletes unused rows.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{Moment, StoreError};

/// How long a row must have been free or expired.
pub(crate) const IDLE: Duration = Duration::from_hours(24);
/// How often a table is swept, by all clients together.
pub(crate) const EVERY: Duration = Duration::from_hours(1);
/// How many rows one statement deletes.
pub(crate) const BATCH: u16 = 500;

/// When this client next checks whether it is its turn to sweep.
pub(crate) struct Sweeping(Mutex<Moment>);

impl Sweeping {
    /// `ago` is how long ago the table was swept, by any client.
    pub(crate) fn new(ago: Option<Duration>) -> Self {
        let left = ago.map_or(Duration::ZERO, |ago| EVERY.saturating_sub(ago));
        Self(Mutex::new(Moment::now() + left))
    }

    /// Whether to check now: true once an hour.
    pub(crate) fn is_due(&self) -> bool {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = next.has_passed();
        if due {
            *next = Moment::now() + EVERY;
        }
        due
    }
}

/// The connection that deletes idle rows.
pub(crate) trait Broom: Send + Sync {
    /// The pause between noting the greatest token of idle rows and deleting them. By then, a statement has ended that
    /// read the earlier note and might start a row below the new one.
    const SETTLE: Duration = Duration::from_secs(1);
    /// How many batches of rows share that pause, so that more rows are deleted than clients can leave behind.
    const BATCHES: usize = 100;

    /// Begins a sweep if the last one is long enough ago. Returns whether it did.
    fn begin(&self, every: Duration) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Prefix, name and token of idle rows, in order, after this one.
    fn idle(
        &self,
        after: (String, String),
    ) -> impl Future<Output = Result<Vec<(String, String, i64)>, StoreError>> + Send;

    /// Notes that every new row's token must be greater.
    fn raise_floor(&self, token: i64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes those of the rows that are still idle, and returns how many.
    fn delete(&self, rows: Vec<(String, String)>) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Closes the connection.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Deletes idle rows, unless the last sweep is less than `every` ago, and returns how many.
///
/// Before a row is deleted, its token is noted in the row with the empty name, and every new row's token starts above
/// that. So tokens rise even if the server's clock is set back meanwhile (clause T2).
pub(crate) async fn sweep(broom: &impl Broom, every: Duration) -> Result<u64, StoreError> {
    let swept = sweep_with(broom, every).await;
    broom.close().await;
    swept
}

async fn sweep_with<B: Broom>(broom: &B, every: Duration) -> Result<u64, StoreError> {
    if !broom.begin(every).await? {
        return Ok(0);
    }
    let (mut after, mut deleted, mut more) = ((String::new(), String::new()), 0, true);
    while more {
        let (mut batches, mut greatest) = (Vec::new(), 0);
        while more && batches.len() < B::BATCHES {
            let idle = broom.idle(after.clone()).await?;
            more = idle.len() == usize::from(BATCH);
            let mut keys = Vec::with_capacity(idle.len());
            for (prefix, name, token) in idle {
                greatest = greatest.max(token);
                keys.push((prefix, name));
            }
            if let Some(last) = keys.last() {
                after.clone_from(last);
                batches.push(keys);
            }
        }
        if !batches.is_empty() {
            broom.raise_floor(greatest).await?;
            tokio::time::sleep(B::SETTLE).await;
        }
        for keys in batches {
            deleted += broom.delete(keys).await?;
        }
    }
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tokio::time::Instant;

    /// A table of idle rows.
    struct Table(Mutex<Idle>);

    struct Idle {
        rows: BTreeMap<(String, String), i64>,
        /// The floor, and when it was raised.
        floor: (i64, Instant),
    }

    impl Table {
        fn new(rows: i64) -> Self {
            let row = |number: i64| (("p".to_owned(), format!("{number:09}")), 1 + number * 7919 % rows);
            let floor = (0, Instant::now());
            Self(Mutex::new(Idle { rows: (0..rows).map(row).collect(), floor }))
        }
    }

    impl Broom for Table {
        async fn begin(&self, _: Duration) -> Result<bool, StoreError> {
            Ok(true)
        }

        async fn idle(&self, after: (String, String)) -> Result<Vec<(String, String, i64)>, StoreError> {
            let idle = self.0.lock().unwrap();
            let rows = idle.rows.iter().filter(|(key, _)| **key > after).take(BATCH.into());
            Ok(rows.map(|((prefix, name), token)| (prefix.clone(), name.clone(), *token)).collect())
        }

        async fn raise_floor(&self, token: i64) -> Result<(), StoreError> {
            let mut idle = self.0.lock().unwrap();
            idle.floor = (idle.floor.0.max(token), Instant::now());
            Ok(())
        }

        async fn delete(&self, rows: Vec<(String, String)>) -> Result<u64, StoreError> {
            let mut idle = self.0.lock().unwrap();
            let (floor, raised) = idle.floor;
            assert!(raised.elapsed() >= Self::SETTLE && rows.len() <= BATCH.into());
            for row in &rows {
                assert!(idle.rows.remove(row).unwrap() <= floor);
            }
            Ok(rows.len() as u64)
        }

        async fn close(&self) {}
    }

    /// One client uses 23,000 new names a second: `docs/benchmarks.md` has 44 µs for each.
    #[tokio::test(start_paused = true)]
    async fn sweep_keeps_up_with_a_client_that_uses_each_name_once() {
        for rows in [0, 1, 499, 500, 501, 50_000, 101_000] {
            let (table, began) = (Table::new(rows), Instant::now());
            assert_eq!(sweep(&table, EVERY).await.unwrap(), rows.cast_unsigned());
            assert!(table.0.lock().unwrap().rows.is_empty());
            assert!(
                began.elapsed().as_secs() <= rows.cast_unsigned() / 23_000 + 1,
                "{rows}: {:?}",
                began.elapsed()
            );
        }
    }
}
