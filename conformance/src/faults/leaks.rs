//! What is left when every client has ended.

use super::options::Options;
use crate::{
    Subject,
    check::{Check, Stop, chain},
    judge::{Event, Recorder, What},
};
use std::{sync::Arc, time::Duration};
use tenure_core::{Backend, Error, Locks};
use tokio::time::{Instant, sleep};

/// Takes each lock once more, alone, and notes those that cannot be had.
///
/// What a killed process held or waited for ends with its lease; nothing else may be left. A queue lets the dead delay
/// the living a little longer.
pub(super) async fn look(
    subject: &dyn Subject,
    names: &[String],
    options: &Options,
    recorder: &Recorder,
) -> Check {
    let patience = options.lease * 2 + options.allowance;
    let locks = Locks::new(open(subject).await?);
    for name in names {
        // So long that it is not lost before it is released, however busy the machine is.
        match locks.lock(name).lease(options.lease * 30).wait(patience).acquire().await {
            Ok(guard) => guard.release().await?,
            Err(Error::Timeout { .. }) => {
                let holders = match locks.holders(name).await {
                    Ok(holders) => format!("{holders:?}"),
                    Err(error) => error.to_string(),
                };
                recorder.note(Event::STORE, What::Leaked { name: name.clone(), holders });
            }
            Err(error) => return Err(error.into()),
        }
    }
    locks.close().await;
    Ok(())
}

/// How long healed servers may take until they serve again. A ZooKeeper ensemble whose first election fails begins another
/// one 10 s later.
const RECOVERY: Duration = Duration::from_secs(40);

/// Servers that have just been healed may still be choosing a leader.
async fn open(subject: &dyn Subject) -> Check<Arc<dyn Backend>> {
    let until = Instant::now() + RECOVERY;
    loop {
        match subject.backend().await {
            Ok(backend) => return Ok(backend),
            Err(error) if until <= Instant::now() => return Err(Stop::failed(chain(&*error))),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}
