//! What a person sees while waiting: who holds the lock, and for how long.

use crate::{people::span, stderr};
use nix::unistd::{getpgrp, tcgetpgrp};
use std::{
    convert::Infallible,
    future::pending,
    io::{self, IsTerminal},
    time::Duration,
};
use tenure::{Error, Holder, Locks, Name};
use tokio::time::{Instant, sleep, sleep_until};

/// A wait shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often the store is asked who holds the lock.
const ASK: Duration = Duration::from_secs(1);

/// Shows one line on stderr until it is dropped. Shows nothing if stderr is not a terminal, or this process is not in
/// its foreground.
pub(crate) async fn show(locks: &Locks, names: &[Name]) -> Infallible {
    let stderr = io::stderr();
    if !stderr.is_terminal() || tcgetpgrp(&stderr) != Ok(getpgrp()) {
        return pending().await;
    }
    sleep(PATIENCE).await;
    let _line = Line;
    loop {
        let asked = Instant::now();
        stderr::show(Some(news(locks, names).await));
        sleep_until(asked + ASK).await;
    }
}

/// Clears the line when it is dropped.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        stderr::show(None);
    }
}

/// Who holds the first name that others hold: names are acquired in this order.
async fn news(locks: &Locks, names: &[Name]) -> String {
    let mut news = None;
    for name in names {
        let mut holders = locks.holders(name).await;
        if let Ok(holders) = &mut holders {
            // Some of several names may be held by this process already.
            holders.retain(|holder| holder.info.pid != std::process::id());
        }
        let is_held = !matches!(holders.as_deref(), Ok([]));
        if is_held || news.is_none() {
            news = Some(message(name, &holders));
        }
        if is_held {
            break;
        }
    }
    news.unwrap_or_default()
}

fn message(name: &Name, holders: &Result<Vec<Holder>, Error>) -> String {
    match holders.as_deref() {
        Ok([]) => format!("waiting for {name:?}: it is about to be free"),
        Ok([holder]) => {
            let lease =
                holder.left.map_or(String::new(), |left| format!(", {} of its lease left", span(left)));
            format!("waiting for {name:?}: held by {holder}{lease}")
        }
        Ok(holders) => format!("waiting for {name:?}: held by {} others", holders.len()),
        Err(error) if error.is_retryable() => format!("waiting for {name:?}: {error}"),
        Err(_) => format!("waiting for {name:?}"),
    }
}
