//! The news on stderr during a wait: the lock's holder and the rest of its lease, or the latch's missing parties.

use crate::{
    people::span,
    stderr::{self, Volume},
};
use nix::unistd::{getpgrp, tcgetpgrp};
use std::{
    convert::Infallible,
    env,
    future::pending,
    io::{self, IsTerminal},
    time::Duration,
};
use tenure::{Error, Holder, Locks, Name};
use tokio::time::{Instant, sleep, sleep_until};

/// A wait shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often the store is asked for news.
const ASK: Duration = Duration::from_secs(1);

/// When a line is printed where none can move: this long after the wait began, and then once [a day](DAY).
const LINES: [Duration; 6] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_hours(1),
    Duration::from_hours(6),
];
const DAY: Duration = Duration::from_hours(24);
/// With `--verbose`, an earlier line.
const EARLY: Duration = Duration::from_secs(1);

/// Reports on stderr the holder of the lock that `name` returns, until it is dropped.
pub(crate) async fn show(locks: &Locks, name: impl Fn() -> Name) -> Infallible {
    tell(async || news(locks, &name()).await).await
}

/// Reports news on stderr, until it is dropped: in one moving line if stderr is a terminal and this process is in its
/// foreground, and otherwise in lines that come ever more rarely.
pub(crate) async fn tell(news: impl AsyncFn() -> String) -> Infallible {
    if stderr::volume() == Volume::Errors {
        // Without output, the store is not asked either.
        return pending().await;
    }
    let stderr = io::stderr();
    let can_move = env::var_os("TERM").is_some_and(|term| term != "dumb");
    if can_move && stderr.is_terminal() && tcgetpgrp(&stderr) == Ok(getpgrp()) {
        moving_line(news).await
    } else {
        lines(news).await
    }
}

async fn moving_line(news: impl AsyncFn() -> String) -> Infallible {
    sleep(PATIENCE).await;
    let _line = Line;
    loop {
        let asked = Instant::now();
        stderr::show(Some(news().await));
        sleep_until(asked + ASK).await;
    }
}

async fn lines(news: impl AsyncFn() -> String) -> Infallible {
    let began = Instant::now();
    let early = (stderr::volume() == Volume::Everything).then_some(EARLY);
    for after in early.into_iter().chain(times()) {
        sleep_until(began + after).await;
        stderr::mention(&news().await);
    }
    pending().await
}

fn times() -> impl Iterator<Item = Duration> {
    LINES.into_iter().chain((1..).map(|days| DAY * days))
}

/// Clears the line when it is dropped.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        stderr::show(None);
    }
}

async fn news(locks: &Locks, name: &Name) -> String {
    message(name, &locks.holders(name).await)
}

fn message(name: &Name, holders: &Result<Vec<Holder>, Error>) -> String {
    match holders.as_deref() {
        Ok([]) => format!("waiting for {name:?}: no client holds it now"),
        Ok([holder]) => {
            let lease =
                holder.left.map_or(String::new(), |left| format!(", {} of its lease left", span(left)));
            format!("waiting for {name:?}: held by {holder}{lease}")
        }
        Ok(holders) => format!("waiting for {name:?}: held by {} holders", holders.len()),
        Err(error) => format!("waiting for {name:?}{}", outage(error)),
    }
}

/// The end of a line about a wait: the store's outage, if that is what the error is about.
pub(crate) fn outage(error: &Error) -> String {
    match error {
        Error::Unavailable { store, source, .. } => {
            format!(": {store} is unavailable: {source}; trying again")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::Memory;

    /// As in two containers whose machines have one name, and whose processes have one number.
    #[tokio::test]
    async fn waiter_sees_holder_with_its_own_host_and_number() {
        let store = Memory::new();
        let [one, other] = [store.clone(), store].map(Locks::new);
        let _held = one.lock("a").label("backup").acquire().await.unwrap();
        let news = news(&other, &Name::new("a").unwrap()).await;
        assert!(news.starts_with("waiting for \"a\": held by backup ("), "{news}");
    }

    #[test]
    fn lines_come_ever_more_rarely_and_never_stop() {
        let times: Vec<Duration> = times().take(20).collect();
        let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        assert_eq!(times[0], Duration::from_secs(5));
        assert!(pauses.is_sorted(), "{times:?}");
        assert_eq!(pauses.last(), Some(&DAY));
    }
}
