//! Deletes rows that nobody uses.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{Moment, StoreError};

/// How long a row must have been free or expired.
pub(crate) const IDLE: Duration = Duration::from_hours(24);
/// How often a table is swept, whoever does it.
pub(crate) const EVERY: Duration = Duration::from_hours(1);
/// How many rows one statement deletes.
pub(crate) const BATCH: u16 = 500;

/// When this client next checks whether it is its turn to sweep.
pub(crate) struct Sweeping(Mutex<Moment>);

impl Sweeping {
    /// `ago` is how long ago the table was swept, by anybody.
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

/// What deletes idle rows.
pub(crate) trait Broom: Send + Sync {
    /// The pause between noting the greatest token of idle rows and deleting them. By then, a statement has ended that
    /// read the earlier note and might start a row below the new one.
    const SETTLE: Duration = Duration::from_secs(1);

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
    let (mut after, mut deleted) = ((String::new(), String::new()), 0);
    loop {
        let idle = broom.idle(after).await?;
        let Some((prefix, name, _)) = idle.last().cloned() else { return Ok(deleted) };
        let greatest = idle.iter().map(|(.., token)| *token).max().unwrap_or(0);
        let whole = idle.len() == usize::from(BATCH);
        broom.raise_floor(greatest).await?;
        tokio::time::sleep(B::SETTLE).await;
        deleted += broom.delete(idle.into_iter().map(|(prefix, name, _)| (prefix, name)).collect()).await?;
        if !whole {
            return Ok(deleted);
        }
        after = (prefix, name);
    }
}
