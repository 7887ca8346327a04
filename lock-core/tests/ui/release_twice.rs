//! A lock cannot be released twice (clause U4).

use tenure_core::{Error, Guard};

async fn release_twice(guard: Guard) -> Result<(), Error> {
    guard.release().await?;
    guard.release().await
}

fn main() {}
