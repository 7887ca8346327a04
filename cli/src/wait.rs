//! `tenure wait`: waits until a lock is free, without acquiring it.

use crate::{args, exit::Failure, job::signals::Signals, store, waiting, warnings};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::{process::ExitCode, time::Duration};
use tenure::{Locks, Name};
use tokio::time::{Instant, sleep};

/// The first and the longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

pub(crate) async fn wait(store: &args::Store, args: &args::Wait) -> Result<ExitCode, Failure> {
    warnings::show();
    let url = store::url(store)?;
    let mut signals = Signals::that_end()?;
    let waited = async {
        let (locks, left) = store::open_to_hold(&url, args.limit.longest()).await?;
        let waited = tokio::select! {
            waited = free(&locks, &args.name, &args.limit, left) => waited,
            never = waiting::show(&locks, || args.name.clone()) => match never {},
        };
        locks.close().await;
        waited
    };
    tokio::select! {
        waited = waited => waited.map_err(|failure| failure.if_busy(args.limit.exit_code))?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at least once, and until the lock is free or the time is over.
async fn free(
    locks: &Locks,
    name: &Name,
    limit: &args::Limit,
    left: Option<Duration>,
) -> Result<(), Failure> {
    let end = left.map(|wait| Instant::now() + wait);
    let (first, longest) = PAUSES;
    // backon's jitter at most doubles a delay, so this asks for half.
    let growing =
        ExponentialBuilder::new().with_factor(1.5).with_min_delay(first / 2).with_max_delay(longest / 2);
    let mut pauses = growing.with_jitter().without_max_times().build();
    loop {
        let looked = locks.holders(name).await;
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        match looked {
            Ok(holders) if holders.is_empty() => return Ok(()),
            Ok(holders) if left.is_some_and(|left| left.is_zero()) => {
                let within = match limit.wait {
                    Some(wait) => format!("was not free within {}", humantime::format_duration(wait)),
                    None => "is busy".to_owned(),
                };
                return Err(Failure::Busy(format!("lock {name:?} in {} {within}", locks.store()), holders));
            }
            // The store may be back in time. Meanwhile, the line on stderr shows the error.
            Err(error) if !error.is_retryable() || left.is_some_and(|left| left.is_zero()) => {
                return Err(error.into());
            }
            Ok(_) | Err(_) => {}
        }
        let pause = pauses.next().unwrap_or(longest);
        sleep(left.map_or(pause, |left| left.min(pause))).await;
    }
}
