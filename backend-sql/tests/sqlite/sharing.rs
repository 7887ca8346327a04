//! Readers and permits: several holders in one row.

use super::*;
use std::num::NonZeroU32;
use tenure_core::{Conversion, LossCause, Release, Renewal, StoreError};

const RELEASED: Release = Release::Released { awaited: false };

fn reader(text: &str) -> Claim {
    Claim { mode: Mode::Shared, ..claim(text) }
}

fn permits(text: &str, take: u32, of: u32) -> Claim {
    let number = |n| NonZeroU32::new(n).unwrap();
    Claim { mode: Mode::Permit { take: number(take), of: number(of) }, ..claim(text) }
}

/// Ends the time of a claim's share, as the clock would.
async fn expire(file: &File, grant: &Grant) {
    let mut connection = file.raw().await;
    let alone = "UPDATE tenure_locks SET expires_at = 1 WHERE claim = ?1 AND name = ?2";
    let beside = "UPDATE tenure_locks SET version = version + 1, record = json_set(record, held.fullkey || '.until', 1)
        FROM (SELECT tenure_locks.name AS of, one.fullkey FROM tenure_locks, json_each(record, '$.held') AS one
            WHERE one.value ->> '$.claim' = ?1) AS held
        WHERE name = ?2 AND held.of = name";
    let mut expired = 0;
    for expire in [alone, beside] {
        let expire = sqlx::query(expire).bind(grant.claim.to_string()).bind(grant.name.to_string());
        expired += expire.execute(&mut connection).await.unwrap().rows_affected();
    }
    assert_eq!(expired, 1);
    connection.close().await.unwrap();
}

/// Has it wait until its mark stands.
async fn marked(file: &File, backend: &SqliteBackend, claim: &Claim) {
    tokio::select! {
        acquired = backend.acquire(claim) => panic!("it was had: {acquired:?}"),
        () = until(async || file.number("SELECT awaited_until FROM tenure_locks WHERE name = 'a'").await > 0) => {}
    }
}

async fn mode(backend: &SqliteBackend, text: &str) -> Vec<(Option<ClaimId>, Mode)> {
    let holders = backend.holders(&name(text)).await.unwrap();
    holders.iter().map(|holder| (holder.claim, holder.mode)).collect()
}

#[tokio::test]
async fn a_share_whose_time_is_over_counts_for_nothing() {
    let file = File::new();
    let (ours, theirs) = (file.open().await, file.open().await);
    let (dead, alive) =
        (granted(&ours, &permits("a", 2, 3)).await, granted(&theirs, &permits("a", 1, 3)).await);
    busy(&ours, &permits("a", 1, 3)).await.unwrap();
    expire(&file, &dead).await;
    assert_eq!(mode(&ours, "a").await, [(Some(alive.claim), alive.mode)]);
    // It stands in the row until somebody changes that.
    assert_eq!(ours.release(&dead).await.unwrap(), Release::Lost(LossCause::Expired));
    assert_eq!(ours.renew(std::slice::from_ref(&dead)).await.unwrap(), [Renewal::Lost(LossCause::Expired)]);
    let next = granted(&ours, &permits("a", 2, 3)).await;
    assert!(next.token > alive.token && alive.token > dead.token);
    let shares = "SELECT count(*) FROM tenure_locks, json_each(record, '$.held')";
    assert_eq!(file.number(shares).await, 2, "the dead share is still in the row");
    assert_eq!(ours.release(&next).await.unwrap(), RELEASED);
    assert_eq!(theirs.release(&alive).await.unwrap(), RELEASED);
    assert_eq!(
        file.number("SELECT claim IS NULL AND record IS NULL FROM tenure_locks WHERE name = 'a'").await,
        1
    );
    // Tokens rise though the clock is behind them.
    file.execute("UPDATE tenure_locks SET token = token + 3600000000").await;
    for ahead in [3_600_000_001, 3_600_000_002] {
        let reading = granted(&ours, &reader("a")).await;
        assert_eq!(reading.token.get(), next.token.get() + ahead);
        assert_eq!(ours.holders(&reading.name).await.unwrap().pop().unwrap().token, Some(reading.token));
    }
}

/// The row stands as long as the last of its shares: no longer, when that one has gone.
#[tokio::test]
async fn the_last_of_the_shares_keeps_the_row() {
    let file = File::new();
    let backend = file.open().await;
    let long = granted(&backend, &Claim { lease: Duration::from_mins(10), ..reader("a") }).await;
    let brief = granted(&backend, &Claim { lease: SHORT, ..reader("a") }).await;
    let left = busy(&backend, &claim("a")).await.unwrap();
    assert!(left > Duration::from_mins(9), "{left:?}");
    assert_eq!(backend.release(&long).await.unwrap(), RELEASED);
    if let Some(left) = busy_or_granted(&backend, &claim("a")).await {
        assert!(left <= SHORT, "{left:?}");
    }
    let writer = backend.acquire(&claim("a")).await.unwrap();
    assert!(writer.token > brief.token);
    assert_eq!(backend.release(&brief).await.unwrap(), Release::Lost(LossCause::TakenOver));
    assert_eq!(mode(&backend, "a").await, [(Some(writer.claim), Mode::Exclusive)]);
}

/// `None` when it was granted, and released again.
async fn busy_or_granted(backend: &SqliteBackend, claim: &Claim) -> Option<Duration> {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Busy { expires_in } => expires_in,
        Attempt::Granted(grant) => {
            backend.release(&grant).await.unwrap();
            None
        }
    }
}

#[tokio::test]
async fn a_reader_asked_for_again_is_the_same() {
    let file = File::new();
    let backend = file.open().await;
    let (mine, other) = (reader("a"), reader("a"));
    let (first, _) = (granted(&backend, &mine).await, granted(&backend, &other).await);
    assert_eq!(granted(&backend, &mine).await.token, first.token);
    assert_eq!(mode(&backend, "a").await.len(), 2);
    assert_eq!(backend.release(&first).await.unwrap(), RELEASED);
    assert_eq!(backend.release(&first).await.unwrap(), Release::Lost(LossCause::Expired));
    assert_eq!(mode(&backend, "a").await, [(Some(other.id), Mode::Shared)]);
    // What a lost reply leaves behind is withdrawn, also when its time is over.
    backend.withdraw(&other).await.unwrap();
    assert_eq!(mode(&backend, "a").await, []);
    granted(&backend, &claim("a")).await;
}

#[tokio::test]
async fn a_batch_renews_every_mode() {
    let file = File::new();
    let backend = file.open().await;
    let mut grants = Vec::new();
    for number in 0..100 {
        grants.push(granted(&backend, &claim(&format!("alone{number}"))).await);
        grants.push(granted(&backend, &reader("read")).await);
        grants.push(granted(&backend, &permits("permits", 1, 100)).await);
    }
    expire(&file, &grants[4]).await;
    let released = grants[5].clone();
    assert_eq!(backend.release(&released).await.unwrap(), RELEASED);
    for grant in &mut grants {
        grant.lease = Duration::from_mins(5);
    }
    grants[7].lease = Duration::from_mins(50);
    file.execute("CREATE TABLE writes (n)").await;
    file.execute(
        "CREATE TRIGGER count_writes AFTER UPDATE ON tenure_locks BEGIN INSERT INTO writes VALUES (1); END",
    )
    .await;
    for (number, answer) in backend.renew(&grants).await.unwrap().into_iter().enumerate() {
        match (number, answer) {
            (4 | 5, answer) => assert_eq!(answer, Renewal::Lost(LossCause::Expired), "{number}"),
            (_, answer) => assert_eq!(answer, Renewal::Renewed, "{number}"),
        }
    }
    assert_eq!(file.number("SELECT count(*) FROM writes").await, 102, "a row is written once");
    let held = backend.list("").await.unwrap();
    assert_eq!(held.len(), 298);
    for holder in held {
        let long = holder.claim == Some(grants[7].claim);
        let left = holder.left.unwrap();
        assert!(left > Duration::from_mins(if long { 49 } else { 4 }), "{holder:?}");
        assert!(left <= Duration::from_mins(if long { 50 } else { 5 }), "{holder:?}");
    }
    // All have their own time, and the row has the last of them.
    let left = busy(&backend, &claim("read")).await.unwrap();
    assert!(left > Duration::from_mins(49), "{left:?}");
}

#[tokio::test]
async fn a_writer_that_waits_keeps_new_readers_out() {
    let file = File::new();
    let ours = file.open().await;
    // Its mark stands for 15 s: the whole test, and no longer than the lease of who reads.
    let theirs = SqliteBackend::open(file.options().poll(Duration::from_secs(5))).await.unwrap();
    let first = granted(&ours, &reader("a")).await;
    let writer = Claim { waits: true, ..claim("a") };
    marked(&file, &theirs, &writer).await;
    let left = busy(&ours, &reader("a")).await.unwrap();
    assert!(left <= Duration::from_secs(15), "{left:?}");
    // Whoever holds it already does so.
    assert_eq!(ours.renew(std::slice::from_ref(&first)).await.unwrap(), [Renewal::Renewed]);
    // Nor does it get in when nobody holds it: the writer is next.
    assert_eq!(ours.release(&first).await.unwrap(), Release::Released { awaited: true });
    busy(&ours, &reader("a")).await.unwrap();
    busy(&ours, &permits("a", 1, 2)).await.unwrap();
    // A reader that waits does not prolong the mark of one that may have gone.
    let marked = "SELECT awaited_until FROM tenure_locks WHERE name = 'a'";
    let until = file.number(marked).await;
    let waiting = Claim { waits: true, ..reader("a") };
    let _ = tokio::time::timeout(SHORT, ours.acquire(&waiting)).await.unwrap_err();
    assert_eq!(file.number(marked).await, until);
    // Giving up takes the mark away at once.
    theirs.withdraw(&writer).await.unwrap();
    granted(&ours, &reader("a")).await;
}

#[tokio::test]
async fn the_mark_of_a_writer_that_died_ends() {
    let file = File::new();
    let (ours, theirs) = (file.open().await, file.open().await);
    let first = granted(&ours, &reader("a")).await;
    let writer = Claim { waits: true, ..claim("a") };
    marked(&file, &theirs, &writer).await;
    file.execute("UPDATE tenure_locks SET awaited_until = 1").await;
    granted(&ours, &reader("a")).await;
    // Nobody marks the row for readers that only wait for other readers.
    assert_eq!(ours.release(&first).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn conversions_keep_claim_token_and_lease() {
    let file = File::new();
    let backend = file.open().await;
    let grant = granted(&backend, &claim("a")).await;
    let before = backend.holders(&grant.name).await.unwrap().remove(0);
    for _ in 0..2 {
        assert_eq!(backend.convert(&grant, Mode::Shared).await.unwrap(), Conversion::Converted);
    }
    let after = backend.holders(&grant.name).await.unwrap().remove(0);
    assert_eq!(after.mode, Mode::Shared);
    assert_eq!((before.claim, before.token, before.since), (after.claim, after.token, after.since));
    assert_eq!(before.info, after.info);

    let other = granted(&backend, &reader("a")).await;
    assert_eq!(backend.convert(&grant, Mode::Exclusive).await.unwrap(), Conversion::Refused);
    assert_eq!(backend.release(&other).await.unwrap(), RELEASED);
    for _ in 0..2 {
        assert_eq!(backend.convert(&grant, Mode::Exclusive).await.unwrap(), Conversion::Converted);
    }
    busy(&backend, &reader("a")).await.unwrap();
    busy(&backend, &permits("a", 1, 1)).await.unwrap();
    busy(&backend, &claim("a")).await.unwrap();
    // The other's token was greater; it is not that of the writer.
    assert_eq!(backend.holders(&grant.name).await.unwrap()[0].token, Some(grant.token));
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
    let next = granted(&backend, &claim("a")).await;
    assert!(next.token > other.token);

    let lost = Conversion::Lost(LossCause::TakenOver);
    for to in [Mode::Shared, Mode::Exclusive] {
        assert_eq!(
            backend.convert(&Grant { mode: Mode::Exclusive, ..grant.clone() }, to).await.unwrap(),
            lost
        );
    }
}

#[tokio::test]
async fn those_who_disagree_about_the_number_are_told() {
    let file = File::new();
    let backend = file.open().await;
    let guard = granted(&backend, &permits("a", 1, 4)).await;
    let said = |error: StoreError| {
        assert!(!error.is_unavailable(), "{error}");
        error.to_string()
    };
    for said in [
        said(backend.try_acquire(&permits("a", 1, 7)).await.unwrap_err()),
        said(backend.acquire(&Claim { waits: true, ..permits("a", 1, 7) }).await.unwrap_err()),
    ] {
        assert!(said.contains("4 permits") && said.contains("7 for this client"), "{said}");
    }
    expire(&file, &guard).await;
    granted(&backend, &permits("a", 1, 7)).await;
}

#[tokio::test]
async fn force_ends_all_and_each_learns_of_it() {
    let file = File::new();
    let (ours, theirs) = (file.open().await, file.open().await);
    let (one, other) = (granted(&ours, &reader("a")).await, granted(&theirs, &reader("a")).await);
    let put_out: Vec<_> =
        ours.force_release(&one.name).await.unwrap().iter().map(|h| (h.claim, h.token)).collect();
    assert_eq!(put_out, [(Some(one.claim), Some(one.token)), (Some(other.claim), Some(other.token))]);
    assert!(ours.force_release(&one.name).await.unwrap().is_empty());
    let forced = LossCause::Forced;
    assert_eq!(ours.renew(&[one.clone(), other.clone()]).await.unwrap(), [Renewal::Lost(forced); 2]);
    let next = granted(&theirs, &claim("a")).await;
    assert!(next.token > other.token);
    assert_eq!(theirs.release(&other).await.unwrap(), Release::Lost(forced));
}

#[tokio::test]
async fn a_sweep_keeps_the_token_and_those_who_share() {
    let file = File::new();
    // Swept within the hour, so nobody does it by himself.
    file.open().await.sweep().await.unwrap();
    let backend = file.open().await;
    let gone = granted(&backend, &reader("gone")).await;
    let kept = granted(&backend, &Claim { lease: Duration::from_hours(48), ..reader("kept") }).await;
    granted(&backend, &reader("kept")).await;
    file.execute("UPDATE tenure_locks SET token = token + 3600000000 WHERE name = 'gone'").await;
    backend.release(&gone).await.unwrap();
    file.execute("UPDATE tenure_locks SET expires_at = expires_at - 86400000 - 1").await;
    assert_eq!(backend.sweep().await.unwrap(), 1);
    assert_eq!(backend.renew(std::slice::from_ref(&kept)).await.unwrap(), [Renewal::Renewed]);
    let anew = granted(&backend, &reader("gone")).await;
    assert!(anew.token.get() > gone.token.get() + 3_600_000_000, "{} after {}", anew.token, gone.token);
}

#[tokio::test]
async fn shares_of_others_are_an_error_and_no_panic() {
    let file = File::new();
    let backend = file.open().await;
    granted(&backend, &reader("a")).await;
    for record in ["'{\"x\": 1}'", "'[broken'"] {
        let update = sqlx::AssertSqlSafe(format!("UPDATE tenure_locks SET record = {record}"));
        sqlx::query(update).execute(&mut file.raw().await).await.unwrap();
        assert!(backend.holders(&name("a")).await.is_err(), "{record}");
        assert!(backend.try_acquire(&reader("a")).await.is_err(), "{record}");
    }
}

/// Each writes only what nobody has changed since it read: nobody is overtaken for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_that_come_and_go_at_once_all_get_in() {
    let file = File::new();
    let mut clients = Vec::new();
    for number in 0..16 {
        let backend = file.open().await;
        let asked = move || if number % 2 == 0 { reader("read") } else { permits("permits", 1, 16) };
        clients.push(tokio::spawn(async move {
            for _ in 0..25 {
                let grant = granted(&backend, &asked()).await;
                assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
                assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(
        file.number(
            "SELECT count(*) FROM tenure_locks WHERE name <> '' AND claim IS NULL AND record IS NULL"
        )
        .await,
        2
    );
}
