//! `tenure release --force`: a lock is taken away from whoever holds it.

use crate::{
    args,
    exit::{self, Failure},
    people::{plain, who},
    stderr, store,
};
use std::process::ExitCode;

pub(crate) async fn release(store: Option<String>, args: args::Release) -> Result<ExitCode, Failure> {
    let name = &args.name;
    if !args.force {
        let text = format!(
            "its holder may still be at work on what {name:?} protects, and learns of this only with its next renewal; \
             to take the lock away all the same, add --force"
        );
        return Err(Failure::Usage(text));
    }
    let locks = store::open(store).await?;
    let put_out = locks.force_release(name).await;
    locks.close().await;
    let put_out = put_out?;
    for holder in &put_out {
        let token = holder.token.map_or_else(String::new, |token| format!(", token {token}"));
        exit::print(&format!("{}: taken from {}{token}\n", plain(name), who(holder)))?;
    }
    if put_out.is_empty() {
        stderr::say(&format!("nobody holds {name:?}"));
        return Ok(ExitCode::from(exit::NOBODY));
    }
    Ok(ExitCode::SUCCESS)
}
