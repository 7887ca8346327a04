//! `tenure release`: with `--force` releases a lock that another client holds, and otherwise says who holds it.

use crate::{
    args,
    exit::{self, Failure},
    people::plain,
    stderr, store,
};
use std::process::ExitCode;

pub(crate) async fn release(store: &args::Store, args: &args::Release) -> Result<ExitCode, Failure> {
    let name = &args.name;
    let locks = store::open(store).await?;
    let holders = if args.force { locks.force_release(name).await } else { locks.holders(name).await };
    locks.close().await;
    let holders = holders?;
    if !args.force && !holders.is_empty() {
        let text = format!(
            "lock {name:?} in {} is held, and was not released; its holder may still be at work. To release it anyway, \
             add --force: a holder works on until it next renews its lease",
            locks.store()
        );
        return Err(Failure::Chosen(exit::USAGE, Box::new(Failure::Busy(text, holders))));
    }
    for holder in &holders {
        let token = holder.token.map_or_else(String::new, |token| format!(", token {token}"));
        exit::print(&format!("{}: released by force; was held by {holder}{token}\n", plain(name)))?;
    }
    if holders.is_empty() {
        stderr::say(&format!("lock {name:?} in {} is free", locks.store()));
        return Ok(ExitCode::from(exit::NOT_HELD));
    }
    Ok(ExitCode::SUCCESS)
}
