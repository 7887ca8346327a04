//! Lists of holders.

use super::*;
use tenure_core::LatchStep;

/// In UTF-16, SQLite compares texts by bytes of which the lower comes first.
#[tokio::test]
async fn names_and_labels_are_whole_in_a_file_in_any_encoding() {
    for encoding in ["UTF-8", "UTF-16le", "UTF-16be"] {
        let file = File::new();
        let mut raw = file.raw().await;
        for statement in [format!("PRAGMA encoding = '{encoding}'"), "CREATE TABLE other (id)".to_owned()] {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut raw).await.unwrap();
        }
        raw.close().await.unwrap();
        let backend = file.open().await;
        let info = HolderInfo { label: Some("夜間 😀".into()), host: "夜-1".into(), pid: u32::MAX };
        let names =
            "a jobs/夜 jobs/ÿ jobs/a jobs jobs0 Jobs/a jobs/% jobs/\u{10FFFF} Ā é ÿ 夜 夜/1 娜 \u{FCFF} 😀";
        let mut names: Vec<&str> = names.split(' ').collect();
        for text in &names {
            granted(&backend, &Claim { holder: Arc::new(info.clone()), ..claim(text) }).await;
        }
        backend
            .latch(&name("a"), &LatchStep::CountDown { party: name("p"), of: 2.try_into().unwrap() })
            .await
            .unwrap();
        names.sort_unstable();
        for prefix in ["", "jobs/", "jobs/%", "\u{10FFFF}", "jobs/ÿ", "ÿ", "夜", "夜/", "Ā", "\u{FCFF}", "z"]
        {
            let listed = backend.list(prefix).await.unwrap();
            assert!(listed.iter().all(|holder| holder.info == info), "{listed:?}");
            let listed: Vec<_> = listed.iter().map(|holder| holder.name.as_str()).collect();
            let expected: Vec<_> = names.iter().copied().filter(|name| name.starts_with(prefix)).collect();
            assert_eq!(listed, expected, "{encoding}: {prefix:?}");
        }
    }
}
