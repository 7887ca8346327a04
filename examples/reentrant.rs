//! Re-entrancy: functions that take the lock they need, and call each other, share one grant.
//!
//! `cargo run --example reentrant`, or with `--features sqlite` and `-- sqlite:locks.db`.

use std::env;
use tenure::{Error, Locks, Owner};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tenure::connect(url).await?;

    // The program names the owner that may re-enter, one for each unit of work. No thread or task implies one.
    let me = Owner::new();
    transfer(&locks, &me).await?;

    // Another owner is another, also in the same task.
    let guard = locks.lock("accounts").owner(&me).acquire().await?;
    assert!(locks.lock("accounts").owner(&Owner::new()).try_acquire().await?.is_none());
    guard.release().await?;
    locks.close().await;
    Ok(())
}

async fn transfer(locks: &Locks, owner: &Owner) -> Result<(), Error> {
    let guard = locks.lock("accounts").owner(owner).acquire().await?;
    println!("transfer has the lock, with token {}", guard.token());
    book(locks, owner, "from Ada", -5).await?;
    book(locks, owner, "to Grace", 5).await?;
    // The store's grant goes with the last of the guards, which is this one.
    guard.release().await
}

/// Right by itself, and inside `transfer`.
async fn book(locks: &Locks, owner: &Owner, text: &str, amount: i64) -> Result<(), Error> {
    let guard = locks.lock("accounts").owner(owner).acquire().await?;
    println!("{amount:+} {text}, with token {}", guard.token());
    guard.release().await
}
