//! Readers and writers.

use crate::{
    Check, Client, Fault, Method, Need, Stage,
    case::cases,
    check::{ensure, ensure_eq, ensure_matches, eventually, kept_out, rises, still_held, waits, within},
    pause,
};
use std::time::Duration;
use tenure_core::{Error, Guard, Mode, Owner};

cases!("readers":
    writer_excludes, waiting_writer_blocks_new_readers, downgrade_keeps_lock.policy(),
    downgrade_with_lost_reply_is_repeated.policy(), late_downgrade_changes_nothing.policy(),
    failed_upgrade_keeps_read.policy(), readers_in_one_process.policy(), owner_reads_what_it_writes.policy(),
);

const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for a request that is on its way to take effect.
const MOMENT: Duration = Duration::from_millis(300);

async fn read(client: &Client, name: &str) -> Check<Guard> {
    Ok(client.rw(name).read().wait(PATIENCE).acquire().await?)
}

async fn write(client: &Client, name: &str) -> Check<Guard> {
    Ok(client.rw(name).write().wait(PATIENCE).acquire().await?)
}

async fn can_read(client: &Client, name: &str) -> Check<bool> {
    free(client.rw(name).read().try_acquire().await?).await
}

async fn can_write(client: &Client, name: &str) -> Check<bool> {
    free(client.rw(name).write().try_acquire().await?).await
}

/// Whether there is a guard. Releases it.
async fn free(guard: Option<Guard>) -> Check<bool> {
    match guard {
        Some(guard) => Ok(guard.release().await.map(|()| true)?),
        None => Ok(false),
    }
}

/// Stops the case unless the lock is held in this mode.
#[track_caller]
fn is_in(guard: &Guard, mode: Mode) -> Check {
    still_held(guard)?;
    ensure_eq!(guard.mode(), mode, "the guard's mode");
    Ok(())
}

/// A writer excludes readers, writers and exclusive locks. A reader excludes all but readers.
async fn writer_excludes(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let writer = write(&one, &name).await?;
    for client in [&one, &other] {
        ensure!(!can_read(client, &name).await?, "a reader was granted the name while a writer holds it");
        ensure!(
            !can_write(client, &name).await?,
            "a writer was granted the name while another writer holds it"
        );
        kept_out(&client.lock(&name)).await?;
    }
    writer.release().await?;
    let reader = read(&one, &name).await?;
    for client in [&one, &other] {
        ensure!(!can_write(client, &name).await?, "a writer was granted the name while a reader holds it");
        kept_out(&client.lock(&name)).await?;
        ensure!(can_read(client, &name).await?, "a reader was refused while only a reader holds the name");
    }
    still_held(&reader)?;
    reader.release().await?;
    ensure!(can_write(&other, &name).await?, "a writer was refused after the reader had released");
    Ok(())
}

/// A writer waits behind a reader. New readers are refused until it had its turn, or has given up.
async fn waiting_writer_blocks_new_readers(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other, third], name) = (stage.clients().await?, stage.name("a"));
    let reader = read(&one, &name).await?;
    let waiting = waits(other.rw(&name).write().wait(PATIENCE));
    // The writer's request may reach the store a moment later.
    for client in [&one, &third] {
        eventually!(
            PATIENCE,
            !can_read(client, &name).await?,
            "a new reader is refused while a writer waits"
        );
    }
    ensure!(!waiting.is_finished(), "a waiting writer was granted the name while a reader holds it");
    reader.release().await?;
    let writer = within(PATIENCE, "the waiting writer's grant after the release", waiting).await???;
    writer.release().await?;
    let reader = read(&one, &name).await?;
    let gives_up = other.rw(&name).write().wait(MOMENT).acquire().await;
    ensure_matches!(gives_up, Err(Error::Timeout { .. }));
    eventually!(
        PATIENCE,
        can_read(&third, &name).await?,
        "a reader is granted the name after the waiting writer gave up"
    );
    Ok(reader.release().await?)
}

/// A writer downgrades while another writer waits. The name is never free, so the waiter stays out.
async fn downgrade_keeps_lock(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let mut guard = write(&one, &name).await?;
    let token = guard.token();
    let waiting = waits(other.rw(&name).write().wait(PATIENCE));
    pause::settle(MOMENT).await;
    guard.downgrade().await?;
    is_in(&guard, Mode::Shared)?;
    ensure_eq!(guard.token(), token, "the token after a downgrade");
    pause::linger(MOMENT).await;
    ensure!(!waiting.is_finished(), "a waiting writer was granted the name while a downgraded writer reads");
    guard.release().await?;
    let writer = within(PATIENCE, "the waiting writer's grant after the release", waiting).await???;
    rises(token, writer.token())?;
    writer.release().await?;
    // Without a waiting writer, readers are granted the name beside it.
    let mut guard = write(&one, &name).await?;
    guard.downgrade().await?;
    let reader =
        within(PATIENCE, "a reader's grant beside a downgraded writer", read(&other, &name)).await??;
    ensure!(!can_write(&other, &name).await?, "a writer was granted the name while readers hold it");
    reader.release().await?;
    Ok(guard.release().await?)
}

/// The first request of a downgrade, or its answer, is lost. The client asks again, and then reads beside other
/// readers.
async fn downgrade_with_lost_reply_is_repeated(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    for fault in [Fault::LoseReply, Fault::Refuse] {
        let mut guard = write(&one, &name).await?;
        one.probe.next(Method::Convert, fault);
        guard.downgrade().await?;
        ensure_eq!(
            guard.mode(),
            Mode::Shared,
            "the mode after a downgrade whose first request had the fault {fault:?}"
        );
        let reader =
            within(PATIENCE, "a reader's grant beside a downgraded writer", read(&other, &name)).await??;
        reader.release().await?;
        guard.release().await?;
    }
    Ok(())
}

/// A downgrade without an answer is sent again, and its first request arrives last. It changes neither the mode nor,
/// after an upgrade, the exclusion.
async fn late_downgrade_changes_nothing(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let mut guard = one.rw(&name).write().lease(Duration::from_secs(18)).acquire().await?;
    one.probe.next(Method::Convert, Fault::HoldBack);
    guard.downgrade().await?;
    ensure!(one.probe.count(Method::Convert, &name) >= 2, "a downgrade without an answer was not sent again");
    // The upgrade may be refused while a downgrade may still arrive. Once granted, it stays granted.
    let upgraded = guard.try_upgrade().await?;
    let mode = if upgraded { Mode::Exclusive } else { Mode::Shared };
    ensure_eq!(guard.mode(), mode, "the mode after an upgrade that answered {upgraded}");
    one.probe.carry_out().await;
    is_in(&guard, mode)?;
    let reads = can_read(&other, &name).await?;
    ensure_eq!(
        reads,
        !upgraded,
        "whether another reader is granted the name, after an upgrade that answered {upgraded}"
    );
    guard.release().await?;
    ensure!(can_write(&other, &name).await?, "a writer was refused after the only holder had released");
    Ok(())
}

/// Two readers try to upgrade. Both are refused and still read. The last one is then upgraded, and excludes readers until it
/// downgrades.
async fn failed_upgrade_keeps_read(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (mut mine, mut theirs) = (read(&one, &name).await?, read(&other, &name).await?);
    for guard in [&mut mine, &mut theirs] {
        ensure!(!guard.try_upgrade().await?, "an upgrade was granted while another reader holds the name");
        is_in(guard, Mode::Shared)?;
    }
    theirs.release().await?;
    ensure!(mine.try_upgrade().await?, "the upgrade of the last reader was refused");
    is_in(&mine, Mode::Exclusive)?;
    ensure!(!can_read(&other, &name).await?, "a reader was granted the name beside an upgraded reader");
    mine.downgrade().await?;
    eventually!(PATIENCE, can_read(&other, &name).await?, "a reader is granted the name after the downgrade");
    Ok(mine.release().await?)
}

/// Twenty tasks of one client read at once. Its writer waits for all of them.
async fn readers_in_one_process(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let mut readers = Vec::new();
    for _ in 0..20 {
        readers.push(waits(client.rw(&name).read().wait(PATIENCE)));
    }
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(within(PATIENCE, "the grant of one of twenty readers of a client", reader).await???);
    }
    let waiting = waits(client.rw(&name).write().wait(PATIENCE));
    for guard in guards {
        ensure!(!waiting.is_finished(), "a writer was granted the name while readers of its client hold it");
        guard.release().await?;
    }
    Ok(within(PATIENCE, "the writer's grant after the last reader's release", waiting)
        .await???
        .release()
        .await?)
}

/// A writer's owner may read with its grant. A reader's owner that wants to write gets `Err(WouldDeadlock)`.
async fn owner_reads_what_it_writes(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name, me) = (stage.clients().await?, stage.name("a"), Owner::new());
    let (reading, writing) = (one.rw(&name).read().owner(&me), one.rw(&name).write().owner(&me));
    let writer = writing.acquire().await?;
    let reader = within(PATIENCE, "a read by the writer's owner", reading.acquire()).await??;
    ensure_eq!(reader.token(), writer.token(), "the token of a read by the writer's owner");
    writer.release().await?;
    // The grant excludes other clients until its last guard is released.
    ensure!(
        !can_read(&other, &name).await?,
        "a reader was granted the name before the owner's last guard was released"
    );
    reader.release().await?;
    let reader = reading.acquire().await?;
    let again = within(PATIENCE, "a second read by the reader's owner", reading.acquire()).await??;
    for outcome in [
        within(PATIENCE, "a write by the reader's owner", writing.acquire()).await?.map(Some),
        within(PATIENCE, "an attempt to write by the reader's owner", writing.try_acquire()).await?,
    ] {
        ensure_matches!(outcome, Err(Error::WouldDeadlock { .. }));
    }
    ensure!(reader.is_held() && again.is_held(), "both holds must still be held: {reader:?}, {again:?}");
    again.release().await?;
    Ok(reader.release().await?)
}
