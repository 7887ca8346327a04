//! A lock that was released cannot be extended through its guard.

use std::time::Duration;
use tenure_core::{Error, Guard};

async fn extend_after_release(guard: Guard) -> Result<(), Error> {
    guard.release().await?;
    guard.extend(Duration::from_secs(10)).await
}

fn main() {}
