//! What one statement after the other does to a row.

use super::*;
use std::time::Instant;
use tenure_core::{LossCause, Moment, Release, Renewal, Standing};

const RELEASED: Release = Release::Released { awaited: false };

#[tokio::test]
async fn one_holder_at_a_time() {
    let file = File::new();
    let (one, other) = (file.open().await, file.open().await);
    let first = granted(&one, &claim("a")).await;
    let left = busy(&other, &claim("a")).await.unwrap();
    // A lease lasts to the end of its last millisecond.
    let longest = LEASE + Duration::from_millis(1);
    assert!(left <= longest && left + Duration::from_secs(5) > LEASE, "{left:?}");
    granted(&other, &claim("b")).await;
    assert_eq!(one.release(&first).await.unwrap(), RELEASED);
    let second = granted(&other, &claim("a")).await;
    assert!(second.token > first.token);
}

#[tokio::test]
async fn the_same_claim_is_granted_again() {
    let file = File::new();
    let backend = file.open().await;
    let claim = claim("a");
    let first = granted(&backend, &claim).await;
    file.execute("UPDATE tenure_locks SET expires_at = expires_at - 20000").await;
    let again = granted(&backend, &claim).await;
    assert_eq!(again.token, first.token);
    let left = backend.holders(&claim.name).await.unwrap()[0].left.unwrap();
    assert!(left + Duration::from_secs(10) > LEASE, "the lease is not fresh: {left:?}");

    file.execute("UPDATE tenure_locks SET expires_at = expires_at - 40000").await;
    let anew = granted(&backend, &claim).await;
    assert!(anew.token > first.token, "an expired grant was given again under the same token");
}

#[tokio::test]
async fn a_lease_is_taken_no_sooner_than_it_ends_and_soon_after() {
    let file = File::new();
    // Pauses may grow beyond `LEASE`: whoever is in time does not owe it to the longest of them.
    let backend = SqliteBackend::open(file.options().poll(Duration::from_mins(1))).await.unwrap();
    for _ in 0..10 {
        let first = granted(&backend, &Claim { lease: SHORT, ..claim("a") }).await;
        let answered = Instant::now();
        let next = claim("a");
        let second =
            tokio::time::timeout(LEASE, backend.acquire(&next)).await.expect("not taken soon").unwrap();
        let waited = answered.elapsed();
        // The lease began before the answer was here, but after `sent`.
        let Standing::Lease { sent, .. } = first.standing else { panic!("no lease") };
        assert!(Moment::now().since(sent) >= SHORT, "taken after {waited:?}");
        assert!(second.token > first.token);
        backend.release(&second).await.unwrap();
    }
}

#[tokio::test]
async fn a_stale_holder_touches_nothing() {
    let file = File::new();
    let backend = file.open().await;
    let stale = granted(&backend, &claim("a")).await;
    file.execute("UPDATE tenure_locks SET expires_at = 1").await;
    assert_eq!(
        backend.renew(std::slice::from_ref(&stale)).await.unwrap(),
        [Renewal::Lost(LossCause::Expired)]
    );
    assert_eq!(backend.release(&stale).await.unwrap(), Release::Lost(LossCause::Expired));

    let next = granted(&backend, &claim("a")).await;
    let before = backend.holders(&next.name).await.unwrap();
    assert_eq!(
        backend.renew(std::slice::from_ref(&stale)).await.unwrap(),
        [Renewal::Lost(LossCause::TakenOver)]
    );
    assert_eq!(backend.release(&stale).await.unwrap(), Release::Lost(LossCause::TakenOver));
    let after = backend.holders(&next.name).await.unwrap();
    assert_eq!((before[0].claim, before[0].token), (after[0].claim, after[0].token));
    assert_eq!(backend.release(&next).await.unwrap(), RELEASED);
    assert_eq!(backend.release(&stale).await.unwrap(), Release::Lost(LossCause::TakenOver));
}

#[tokio::test]
async fn a_batch_is_answered_one_by_one() {
    let file = File::new();
    let backend = file.open().await;
    let mut grants = Vec::new();
    for number in 0..500 {
        grants.push(granted(&backend, &claim(&format!("n{number}"))).await);
    }
    file.execute("UPDATE tenure_locks SET expires_at = 1 WHERE name = 'n7'").await;
    file.execute("DELETE FROM tenure_locks WHERE name = 'n8'").await;
    backend.force_release(&name("n9")).await.unwrap();
    grants[10].lease = Duration::from_mins(5);
    let answers = backend.renew(&grants).await.unwrap();
    for (number, answer) in answers.iter().enumerate() {
        let expected = match number {
            7 => Renewal::Lost(LossCause::Expired),
            8 => Renewal::Lost(LossCause::Forgotten),
            9 => Renewal::Lost(LossCause::Forced),
            _ => Renewal::Renewed,
        };
        assert_eq!(*answer, expected, "n{number}");
    }
    let longer = backend.holders(&name("n10")).await.unwrap()[0].left.unwrap();
    assert!(longer > Duration::from_secs(200), "{longer:?}");
    // The claim is still in its row, and still expired.
    assert!(backend.holders(&name("n7")).await.unwrap().is_empty());
}

#[tokio::test]
async fn tokens_rise_though_the_clock_goes_back() {
    let file = File::new();
    let backend = file.open().await;
    let first = granted(&backend, &claim("a")).await;
    assert!(first.token.get() > 1_600_000_000_000_000, "not microseconds since 1970");
    backend.release(&first).await.unwrap();
    // What a row looks like whose last grant was an hour ahead of the clock.
    file.execute("UPDATE tenure_locks SET token = token + 3600000000").await;
    let mut last = first.token.get() + 3_600_000_000;
    for _ in 0..10 {
        let grant = granted(&backend, &claim("a")).await;
        assert_eq!(grant.token.get(), last + 1);
        last = grant.token.get();
        backend.release(&grant).await.unwrap();
    }
}

#[tokio::test]
async fn a_name_means_itself() {
    let file = File::new();
    let backend = file.open().await;
    let long = |last: &str| format!("{}{last}", "x".repeat(199));
    let mut names: Vec<String> =
        ["a", "A", "a ", " a", "a/b", "a%", "a_", "é", "e\u{301}", "'", "\"; --", "*", "🦀"]
            .map(str::to_owned)
            .to_vec();
    names.extend([long("y"), long("z")]);
    for text in &names {
        granted(&backend, &claim(text)).await;
    }
    for text in &names {
        busy(&backend, &claim(text)).await.unwrap();
    }
    let listed: Vec<String> =
        backend.list("").await.unwrap().iter().map(|holder| holder.name.to_string()).collect();
    names.sort();
    assert_eq!(listed, names);
}

#[tokio::test]
async fn prefixes_never_meet() {
    let file = File::new();
    let with = |prefix: &str| SqliteBackend::open(file.options().prefix(prefix));
    let (one, other) = (with("a").await.unwrap(), with("ab").await.unwrap());
    let first = granted(&one, &claim("bc")).await;
    granted(&other, &claim("c")).await;
    assert!(other.holders(&name("bc")).await.unwrap().is_empty());
    assert_eq!(other.list("").await.unwrap().len(), 1);
    assert!(other.force_release(&name("bc")).await.unwrap().is_empty());
    assert_eq!(
        other.renew(std::slice::from_ref(&first)).await.unwrap(),
        [Renewal::Lost(LossCause::Forgotten)]
    );
    assert_eq!(one.release(&first).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn tables_are_apart() {
    let file = File::new();
    let other = SqliteBackend::open(file.options().table("other")).await.unwrap();
    granted(&file.open().await, &claim("a")).await;
    granted(&other, &claim("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_open_a_new_file_at_once() {
    let file = File::new();
    let opened = (0..20).map(|_| tokio::spawn(SqliteBackend::open(file.options())));
    let opened: Vec<_> = opened.collect();
    let mut grants = 0;
    for backend in opened {
        let backend = backend.await.unwrap().unwrap();
        if let Attempt::Granted(_) = backend.try_acquire(&claim("a")).await.unwrap() {
            grants += 1;
        }
    }
    assert_eq!(grants, 1);
}

#[tokio::test]
async fn requests_after_close_open_the_file_again() {
    let file = File::new();
    let backend = file.open().await;
    let grant = granted(&backend, &claim("a")).await;
    backend.close().await;
    backend.close().await;
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
}

#[tokio::test]
async fn a_pool_lends_its_settings() {
    let file = File::new();
    let connect = SqliteConnectOptions::new().filename(file.path()).create_if_missing(true);
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect_with(connect).await.unwrap();
    let backend = SqliteBackend::open_with(&pool.connect_options(), SqliteOptions::default()).await.unwrap();
    assert_eq!(backend.store(), format!("sqlite:{}", file.path().display()));
    // The application has the whole pool in use, and even reads in a transaction.
    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("SELECT * FROM tenure_locks").fetch_all(&mut *transaction).await.unwrap();
    let grant = granted(&backend, &claim("a")).await;
    assert_eq!(backend.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(backend.release(&grant).await.unwrap(), RELEASED);
}
