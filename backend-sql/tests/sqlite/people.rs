//! Who holds what, and releasing by force.

use super::*;
use std::time::SystemTime;
use tenure_core::{LatchStep, LossCause, Release, Renewal};

#[tokio::test]
async fn a_holder_is_told_whole() {
    let file = File::new();
    let backend = file.open().await;
    let info = HolderInfo { label: Some("nightly ünïcode".into()), host: "db-1".into(), pid: u32::MAX };
    let before = SystemTime::now() - Duration::from_millis(2);
    let grant = granted(&backend, &Claim { holder: Arc::new(info.clone()), ..claim("a") }).await;
    let told = file.open().await.holders(&grant.name).await.unwrap();
    let [holder] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((holder.claim, holder.token), (Some(grant.claim), Some(grant.token)));
    assert_eq!(holder.info, info);
    let since = holder.since.unwrap();
    assert!(since >= before && since <= SystemTime::now(), "{since:?}");
    assert!(holder.left.unwrap() <= LEASE && holder.age.unwrap() < Duration::from_secs(10), "{holder:?}");
    assert!(backend.holders(&name("b")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_list_is_a_range_of_bytes_in_order() {
    let file = File::new();
    let backend = file.open().await;
    for text in ["jobs/b", "jobs/a", "jobs", "jobs0", "Jobs/a", "jobs/é", "z", "jobs/\u{10FFFF}", "jobs/%"] {
        granted(&backend, &claim(text)).await;
    }
    let released = granted(&backend, &claim("jobs/released")).await;
    backend.release(&released).await.unwrap();
    granted(&backend, &claim("jobs/expired")).await;
    file.execute("UPDATE tenure_locks SET expires_at = 1 WHERE name = 'jobs/expired'").await;
    let names = async |prefix: &str| -> Vec<String> {
        backend.list(prefix).await.unwrap().iter().map(|holder| holder.name.to_string()).collect()
    };
    assert_eq!(names("jobs/").await, ["jobs/%", "jobs/a", "jobs/b", "jobs/é", "jobs/\u{10FFFF}"]);
    assert_eq!(names("jobs/\u{10FFFF}").await, ["jobs/\u{10FFFF}"]);
    assert_eq!(names("jobs/%").await, ["jobs/%"]);
    assert_eq!(names("\u{10FFFF}").await, Vec::<String>::new());
    assert_eq!(names("").await.len(), 9);
}

/// There, SQLite compares texts by bytes of which the lower comes first.
#[tokio::test]
async fn names_and_labels_are_whole_in_a_file_in_utf_16() {
    for (encoding, set) in
        [("UTF-16le", "PRAGMA encoding = 'UTF-16le'"), ("UTF-16be", "PRAGMA encoding = 'UTF-16be'")]
    {
        let file = File::new();
        let options = SqliteConnectOptions::new().filename(file.path()).create_if_missing(true);
        let mut raw = SqliteConnection::connect_with(&options).await.unwrap();
        for statement in [set, "CREATE TABLE other (id)"] {
            sqlx::query(statement).execute(&mut raw).await.unwrap();
        }
        raw.close().await.unwrap();
        let backend = file.open().await;
        let info = HolderInfo { label: Some("夜間 😀".into()), host: "夜-1".into(), pid: 7 };
        let mut names = vec![
            "a", "jobs/夜", "jobs/ÿ", "jobs/a", "jobs0", "Ā", "é", "ÿ", "夜", "夜/1", "娜", "\u{FCFF}", "😀",
        ];
        for text in &names {
            granted(&backend, &Claim { holder: Arc::new(info.clone()), ..claim(text) }).await;
        }
        backend
            .latch(&name("a"), &LatchStep::CountDown { party: name("p"), of: 2.try_into().unwrap() })
            .await
            .unwrap();
        names.sort_unstable();
        for prefix in ["", "jobs/", "jobs/ÿ", "ÿ", "夜", "夜/", "Ā", "\u{FCFF}", "z"] {
            let listed = backend.list(prefix).await.unwrap();
            assert!(listed.iter().all(|holder| holder.info == info), "{listed:?}");
            let listed: Vec<_> = listed.iter().map(|holder| holder.name.as_str()).collect();
            let expected: Vec<_> = names.iter().copied().filter(|name| name.starts_with(prefix)).collect();
            assert_eq!(listed, expected, "{encoding}: {prefix:?}");
        }
    }
}

#[tokio::test]
async fn force_tells_whom_it_put_out_and_why_to_them() {
    let file = File::new();
    let (ours, theirs) = (file.open().await, file.open().await);
    let grant = granted(&ours, &claim("a")).await;
    let told = theirs.holders(&grant.name).await.unwrap();
    let put_out = theirs.force_release(&grant.name).await.unwrap();
    assert_eq!(put_out.len(), 1);
    assert_eq!((put_out[0].claim, put_out[0].token), (told[0].claim, told[0].token));
    assert!(theirs.force_release(&grant.name).await.unwrap().is_empty());

    let forced = LossCause::Forced;
    assert_eq!(ours.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Lost(forced)]);
    let next = granted(&theirs, &claim("a")).await;
    assert!(next.token > grant.token);
    assert_eq!(ours.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Lost(forced)]);
    assert_eq!(ours.release(&grant).await.unwrap(), Release::Lost(forced));
    assert_eq!(theirs.release(&next).await.unwrap(), Release::Released { awaited: false });
}

#[tokio::test]
async fn rows_of_others_are_an_error_and_no_panic() {
    let file = File::new();
    let backend = file.open().await;
    granted(&backend, &claim("a")).await;
    let beside = granted(&backend, &claim("beside")).await;
    for claim_of_a in ["'somebody'", "CAST(x'ff' AS TEXT)"] {
        let update = format!("UPDATE tenure_locks SET claim = {claim_of_a} WHERE name = 'a'");
        sqlx::query(sqlx::AssertSqlSafe(update)).execute(&mut file.raw().await).await.unwrap();
        assert!(backend.holders(&name("a")).await.is_err(), "{claim_of_a}");
        assert!(backend.try_acquire(&claim("a")).await.is_err(), "{claim_of_a}");
        // Nobody knows who holds it, and it hides no other.
        let listed = backend.list("").await.unwrap();
        let listed: Vec<_> = listed.iter().map(|holder| (&*holder.name, holder.claim)).collect();
        assert_eq!(listed, [("a", None), ("beside", Some(beside.claim))], "{claim_of_a}");
    }
}
