//! Rows that nobody uses are deleted.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{Moment, StoreError};

/// For how long a row must have been free, or its lease over.
pub(crate) const IDLE: Duration = Duration::from_hours(24);
/// How often a table is swept, whoever does it.
pub(crate) const EVERY: Duration = Duration::from_hours(1);
/// How many rows one statement deletes.
pub(crate) const BATCH: u16 = 500;

/// When this client looks next whether it is its turn to sweep.
pub(crate) struct Sweeping(Mutex<Moment>);

impl Sweeping {
    /// `ago` is how long ago the table was swept, by anybody.
    pub(crate) fn new(ago: Option<Duration>) -> Self {
        let left = ago.map_or(Duration::ZERO, |ago| EVERY.saturating_sub(ago));
        Self(Mutex::new(Moment::now() + left))
    }

    /// Whether to look now. Says so once an hour.
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
    /// How long others have between noting the greatest token of idle rows and deleting them. A statement that read the
    /// earlier note, and would begin a row anew below it, has ended by then.
    const SETTLE: Duration = Duration::from_secs(1);

    /// Whether the last sweep is long enough ago; if so, this one has begun.
    fn begin(&self, every: Duration) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Prefix, name and token of idle rows, in order, after this one.
    fn idle(
        &self,
        after: (String, String),
    ) -> impl Future<Output = Result<Vec<(String, String, i64)>, StoreError>> + Send;

    /// Notes that every new row's token must be greater.
    fn raise_floor(&self, token: i64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes those of the rows that are still idle, and tells how many.
    fn delete(&self, rows: Vec<(String, String)>) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Lets go of the connection.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Deletes idle rows, and tells how many, unless the last sweep is less than `every` ago.
///
/// Before a row goes, its token is noted in the row with the empty name, above which every new row's token begins. So
/// tokens rise even if the server's clock is set back meanwhile (clause T2).
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
