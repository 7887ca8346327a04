//! `tenure release --force`: releases a lock by force, even if another client holds it.

use crate::{
    args,
    exit::{self, Failure},
    people::plain,
    stderr, store,
};
use std::process::ExitCode;

pub(crate) async fn release(store: &args::Store, args: &args::Release) -> Result<ExitCode, Failure> {
    let name = &args.name;
    if !args.force {
        let text = format!(
            "lock {name:?} was not released: its holder may still be at work, and notices a forced release only at \
             its next renewal; to release the lock anyway, add --force"
        );
        return Err(Failure::Usage(text));
    }
    let locks = store::open(store).await?;
    let put_out = locks.force_release(name).await;
    locks.close().await;
    let put_out = put_out?;
    for holder in &put_out {
        let token = holder.token.map_or_else(String::new, |token| format!(", token {token}"));
        exit::print(&format!("{}: released by force; was held by {holder}{token}\n", plain(name)))?;
    }
    if put_out.is_empty() {
        stderr::say(&format!("lock {name:?} in {} is free", locks.store()));
        return Ok(ExitCode::from(exit::NOT_HELD));
    }
    Ok(ExitCode::SUCCESS)
}
