//! Looks for locks that are left when every client has ended.

use super::{
    client::Setting,
    options::Options,
    program::{End, Program, words},
};
use crate::{
    Subject,
    check::{Check, Stop, chain},
    judge::{Event, What},
};
use std::{sync::Arc, time::Duration};
use tenure_core::{Backend, Error, Locks};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Takes each lock once more, alone, and notes those that cannot be had.
///
/// Locks and waits of a killed process end with its lease, and nothing else may be left. In a queue, the dead delay the
/// living a little longer. A clock that was set back by so much reaches the end of a lease later by as much.
pub(super) async fn look(setting: &Setting, options: &Options, set_back: Duration) -> Check {
    let patience = options.lease * 2 + options.allowance + set_back;
    if let Some(command) = &setting.program {
        return look_with(command, setting, patience).await;
    }
    let store = open(&*setting.subject).await?;
    let patience = patience + store.capabilities().margin * 2;
    let locks = Locks::new(store);
    let began = Instant::now();
    let until = began + RECOVERY;
    for name in &*setting.names {
        let lock = locks.lock(name).lease(options.lease).wait(patience);
        let outcome = loop {
            match lock.acquire().await {
                Err(Error::Unavailable { .. }) if Instant::now() < until => {}
                // The answer to its own request came too late.
                Err(Error::Timeout { .. })
                    if Instant::now() < until && is_granted_since(began, &locks, name).await => {}
                outcome => break outcome,
            }
            sleep(Duration::from_millis(100)).await;
        };
        match outcome {
            Ok(guard) => match guard.release().await {
                // An answer may be lost even now, and a forced release may come late.
                Ok(()) | Err(Error::Unavailable { .. } | Error::Lost { .. }) => {}
                Err(error) => return Err(error.into()),
            },
            Err(Error::Timeout { .. }) => {
                let holders = match locks.holders(name).await {
                    Ok(holders) => format!("{holders:?}"),
                    Err(error) => error.to_string(),
                };
                setting.recorder.note(Event::STORE, What::Leaked { name: name.clone(), holders });
            }
            Err(error) => return Err(error.into()),
        }
    }
    locks.close().await;
    Ok(())
}

/// Whether the name was granted after all clients had ended.
async fn is_granted_since(began: Instant, locks: &Locks, name: &str) -> bool {
    let holders = locks.holders(name).await.unwrap_or_default();
    holders.iter().any(|holder| holder.age.is_some_and(|age| age < began.elapsed()))
}

/// Looks with a program, since no other client knows its locks.
async fn look_with(command: &str, setting: &Setting, patience: Duration) -> Check {
    let over = CancellationToken::new();
    over.cancel();
    // Killed at the end, if it has not ended.
    let (_child, mut program) = Program::start(command, setting, "last", over)?;
    for name in &*setting.names {
        let left_held = |holders: &str| {
            let (name, holders) = (name.clone(), holders.to_owned());
            setting.recorder.note(Event::STORE, What::Leaked { name, holders });
        };
        match acquire_and_release(&mut program, name, patience).await {
            Ok(true) => {}
            Ok(false) => left_held("not known"),
            // It may still answer, to a request that is not known then.
            Err(End::Hangs) => {
                left_held("not known, since the client that asked does not answer");
                return Ok(());
            }
            Err(End::Output) => {
                return Err(Stop::failed("the process that looks for locks left held ended by itself"));
            }
            Err(End::Failed(stop)) => return Err(stop),
        }
    }
    Ok(())
}

/// Whether it could be acquired.
async fn acquire_and_release(program: &mut Program, name: &str, patience: Duration) -> Result<bool, End> {
    let until = Instant::now() + RECOVERY;
    loop {
        let answer = program.acquire(name, patience).await?;
        match words(&answer)[..] {
            ["held", ..] => return program.give_back(name).await.map(|_| true),
            ["busy"] => return Ok(false),
            ["error", ..] if Instant::now() < until => sleep(Duration::from_millis(100)).await,
            _ => return Err(program.rubbish(&answer)),
        }
    }
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
