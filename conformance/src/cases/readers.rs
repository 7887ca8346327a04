//! Readers and writers.

use crate::{
    Check, Client, Fault, Form, Method, Need, Stage,
    case::cases,
    check::{ensure, ensure_eq, ensure_matches, eventually, kept_out, lost_with, rises, still_held, within},
    pause,
};
use std::time::Duration;
use tenure_core::{Error, Guard, Mode, Owner};

cases!("readers":
    readers_share, writer_excludes, waiting_writer_blocks_new_readers, downgrade_keeps_place, lost_downgrade_is_settled,
    late_downgrade_changes_nothing,
    upgrade_of_sole_reader, failed_upgrade_keeps_read, dead_reader_recovers, tokens_rise_with_readers,
    renewed_readers_stay, readers_in_one_process, owner_reads_what_it_writes.policy(), forced_release_ends_all_readers,
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

/// Whether there is a guard, which is released.
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
    ensure_eq!(guard.mode(), mode);
    Ok(())
}

async fn readers_share(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let mut readers = Vec::new();
    for client in [&one, &other, &one, &other] {
        let asked = within(PATIENCE, "reading beside readers", read(client, &name)).await??;
        is_in(&asked, Mode::Shared)?;
        readers.push(asked);
    }
    ensure!(readers.iter().all(|reader| reader.is_held()));
    if stage.needs(Need::Listing).is_ok() {
        let mut told: Vec<_> =
            one.holders(&name).await?.into_iter().map(|h| (h.claim, h.token, h.mode)).collect();
        let mut held: Vec<_> =
            readers.iter().map(|r| (Some(r.claim()), Some(r.token()), Mode::Shared)).collect();
        told.sort_by_key(|(claim, ..)| *claim);
        held.sort_by_key(|(claim, ..)| *claim);
        ensure_eq!(told, held);
    }
    for reader in readers {
        reader.release().await?;
    }
    ensure!(can_write(&other, &name).await?);
    Ok(())
}

async fn writer_excludes(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let writer = write(&one, &name).await?;
    for client in [&one, &other] {
        ensure!(!can_read(client, &name).await?);
        ensure!(!can_write(client, &name).await?);
        kept_out(&client.lock(&name)).await?;
    }
    writer.release().await?;
    let reader = read(&one, &name).await?;
    for client in [&one, &other] {
        ensure!(!can_write(client, &name).await?);
        kept_out(&client.lock(&name)).await?;
        ensure!(can_read(client, &name).await?);
    }
    still_held(&reader)?;
    reader.release().await?;
    ensure!(can_write(&other, &name).await?);
    Ok(())
}

/// Readers that come and go, always at least one, do not keep a writer out for ever; nor does a writer that gave up
/// keep readers out.
async fn waiting_writer_blocks_new_readers(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other, third], name) = (stage.clients().await?, stage.name("a"));
    let reader = read(&one, &name).await?;
    let waiting = {
        let lock = other.rw(&name).write().wait(PATIENCE);
        tokio::spawn(async move { lock.acquire().await })
    };
    // From now on it waits; how soon the store knows is up to the store.
    for client in [&one, &third] {
        eventually!(PATIENCE, !can_read(client, &name).await?);
    }
    ensure!(!waiting.is_finished());
    reader.release().await?;
    let writer = within(PATIENCE, "the writer that waited", waiting).await???;
    writer.release().await?;
    let reader = read(&one, &name).await?;
    let gives_up = other.rw(&name).write().wait(MOMENT).acquire().await;
    ensure_matches!(gives_up, Err(Error::Timeout { .. }));
    eventually!(PATIENCE, can_read(&third, &name).await?);
    Ok(reader.release().await?)
}

async fn downgrade_keeps_place(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let mut guard = write(&one, &name).await?;
    let token = guard.token();
    let waiting = {
        let lock = other.rw(&name).write().wait(PATIENCE);
        tokio::spawn(async move { lock.acquire().await })
    };
    pause::settle(MOMENT).await;
    guard.downgrade().await?;
    is_in(&guard, Mode::Shared)?;
    ensure_eq!(guard.token(), token);
    pause::linger(MOMENT).await;
    ensure!(!waiting.is_finished());
    guard.release().await?;
    let writer = within(PATIENCE, "the writer that waited", waiting).await???;
    rises(token, writer.token())?;
    writer.release().await?;
    // With nobody waiting, readers get in beside it.
    let mut guard = write(&one, &name).await?;
    guard.downgrade().await?;
    let reader = within(PATIENCE, "reading beside what was a writer", read(&other, &name)).await??;
    ensure!(!can_write(&other, &name).await?);
    reader.release().await?;
    Ok(guard.release().await?)
}

/// The store's answer to a downgrade is lost: it is asked again, and the holder never counts on more than it has.
async fn lost_downgrade_is_settled(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    for fault in [Fault::LoseReply, Fault::Refuse] {
        let mut guard = write(&one, &name).await?;
        one.probe.next(Method::Convert, fault);
        guard.downgrade().await?;
        ensure_eq!(guard.mode(), Mode::Shared, "the mode after {fault:?}");
        let reader = within(PATIENCE, "reading beside what was a writer", read(&other, &name)).await??;
        reader.release().await?;
        guard.release().await?;
    }
    Ok(())
}

/// An unanswered downgrade is sent again, and the first request arrives after everything that was decided since.
async fn late_downgrade_changes_nothing(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    // The client waits for an answer for a sixth of the lease: longer than a busy store takes.
    let mut guard = one.rw(&name).write().lease(Duration::from_secs(18)).acquire().await?;
    one.probe.next(Method::Convert, Fault::HoldBack);
    guard.downgrade().await?;
    ensure!(one.probe.count(Method::Convert, &name) >= 2);
    // It may be refused because of the request that is still on its way, but if granted it stays granted.
    let upgraded = guard.try_upgrade().await?;
    let mode = if upgraded { Mode::Exclusive } else { Mode::Shared };
    ensure_eq!(guard.mode(), mode);
    one.probe.carry_out().await;
    is_in(&guard, mode)?;
    ensure_eq!(can_read(&other, &name).await?, !upgraded);
    guard.release().await?;
    ensure!(can_write(&other, &name).await?);
    Ok(())
}

async fn upgrade_of_sole_reader(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let mut guard = read(&one, &name).await?;
    ensure!(guard.try_upgrade().await?);
    is_in(&guard, Mode::Exclusive)?;
    ensure!(!can_read(&other, &name).await?);
    guard.downgrade().await?;
    eventually!(PATIENCE, can_read(&other, &name).await?);
    guard.release().await?;
    ensure!(can_write(&other, &name).await?);
    Ok(())
}

async fn failed_upgrade_keeps_read(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (mut mine, mut theirs) = (read(&one, &name).await?, read(&other, &name).await?);
    for guard in [&mut mine, &mut theirs] {
        ensure!(!guard.try_upgrade().await?);
        is_in(guard, Mode::Shared)?;
    }
    theirs.release().await?;
    ensure!(mine.try_upgrade().await?);
    Ok(mine.release().await?)
}

async fn dead_reader_recovers(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    stage.needs(Need::Processes)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let mut victim = stage.victim_with(Form::Reader).await?;
    let token = victim.hold(&name, Duration::from_secs(3)).await?;
    let reader = within(PATIENCE, "reading beside another process", read(&client, &name)).await??;
    rises(token, reader.token())?;
    victim.kill().await?;
    let waiting = {
        let lock = client.rw(&name).write().wait(PATIENCE);
        tokio::spawn(async move { lock.acquire().await })
    };
    pause::settle(MOMENT).await;
    reader.release().await?;
    let writer = within(PATIENCE, "writing after a reader died", waiting).await???;
    rises(token, writer.token())?;
    Ok(writer.release().await?)
}

async fn tokens_rise_with_readers(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let (mut last, mut readers) = (None, Vec::new());
    for _ in 0..10 {
        for client in [&one, &other] {
            let reader = read(client, &name).await?;
            rises(last, reader.token())?;
            last = Some(reader.token());
            readers.push(reader);
        }
        for reader in readers.drain(..) {
            reader.release().await?;
        }
        let writer = write(&one, &name).await?;
        rises(last, writer.token())?;
        last = Some(writer.token());
        writer.release().await?;
    }
    Ok(())
}

/// Each reader renews its own grant, and nobody else's.
async fn renewed_readers_stay(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    stage.needs(Need::Lease)?;
    let ([one, other], name, lease) = (stage.clients().await?, stage.name("a"), Duration::from_secs(6));
    let renewed = one.rw(&name).read().lease(lease).acquire().await?;
    let plain = other.rw(&name).read().lease(lease).renew(false).acquire().await?;
    pause::keep(lease * 3 / 2).await;
    still_held(&renewed)?;
    ensure!(!plain.is_held());
    ensure!(!can_write(&other, &name).await?);
    lost_with(plain.release().await)?;
    still_held(&renewed)?;
    renewed.release().await?;
    ensure!(can_write(&other, &name).await?);
    Ok(())
}

/// Tasks of one client share the lock too, and its writers wait for its readers.
async fn readers_in_one_process(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let (client, name) = (stage.client().await?, stage.name("a"));
    let mut readers = Vec::new();
    for _ in 0..20 {
        let lock = client.rw(&name).read().wait(PATIENCE);
        readers.push(tokio::spawn(async move { lock.acquire().await }));
    }
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(within(PATIENCE, "one of twenty readers", reader).await???);
    }
    let waiting = {
        let lock = client.rw(&name).write().wait(PATIENCE);
        tokio::spawn(async move { lock.acquire().await })
    };
    for guard in guards {
        ensure!(!waiting.is_finished());
        guard.release().await?;
    }
    Ok(within(PATIENCE, "the writer", waiting).await???.release().await?)
}

async fn owner_reads_what_it_writes(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    let ([one, other], name, me) = (stage.clients().await?, stage.name("a"), Owner::new());
    let (reading, writing) = (one.rw(&name).read().owner(&me), one.rw(&name).write().owner(&me));
    let writer = writing.acquire().await?;
    let reader = within(PATIENCE, "reading what one writes", reading.acquire()).await??;
    ensure_eq!(reader.token(), writer.token());
    writer.release().await?;
    // The grant excludes others until its last guard has gone.
    ensure!(!can_read(&other, &name).await?);
    reader.release().await?;
    let reader = reading.acquire().await?;
    let again = within(PATIENCE, "reading what one reads", reading.acquire()).await??;
    for outcome in [
        within(PATIENCE, "writing what one reads", writing.acquire()).await?.map(Some),
        within(PATIENCE, "trying to write what one reads", writing.try_acquire()).await?,
    ] {
        ensure_matches!(outcome, Err(Error::WouldDeadlock { .. }));
    }
    ensure!(reader.is_held() && again.is_held());
    again.release().await?;
    Ok(reader.release().await?)
}

async fn forced_release_ends_all_readers(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    stage.needs(Need::Listing)?;
    let ([one, other], name) = (stage.clients().await?, stage.name("a"));
    let lease = Duration::from_secs(6);
    let mine = one.rw(&name).read().lease(lease).acquire().await?;
    let theirs = other.rw(&name).read().lease(lease).acquire().await?;
    let put_out = one.force_release(&name).await?;
    ensure_eq!(put_out.len(), 2, "holders put out: {put_out:?}");
    for guard in [mine, theirs] {
        within(PATIENCE, "a reader that was put out", guard.lost()).await?;
        lost_with(guard.release().await)?;
    }
    ensure!(can_write(&other, &name).await?);
    Ok(())
}
