//! Databases that cannot store every character.

use crate::{
    Backend, Claim, HolderInfo, Kind, Table, case::cases, claim, granted, name, reader, said, soon,
    store::Options, table::Raw,
};
use futures_util::future::join_all;
use std::sync::Arc;
use tenure_core::{AttemptAll, Error};
use tenure_sql::Strategy;

cases!("encodings":
    label_is_told_whole_and_costs_no_lock_in_any_encoding,
    list_is_whole_and_sorted_in_any_encoding,
    name_outside_of_the_encoding_is_refused_at_once.on(POSTGRES),
    prefix_outside_of_the_encoding_is_refused_when_connecting.on(POSTGRES),
);

const POSTGRES: &[Kind] = &[Kind::Postgres];

/// A new database in this encoding, and the options for it.
async fn database(table: &Table, encoding: &str) -> Options {
    let name = format!("{}_{encoding}", table.name).to_lowercase();
    let mut admin = table.admin().await;
    let url = table.server.url();
    let user = url.split_once("://").unwrap().1.split_once(':').unwrap().0;
    if table.is_postgres() {
        let like = "LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
        admin.execute(&format!("CREATE DATABASE {name} OWNER {user} ENCODING '{encoding}' {like}")).await;
    } else {
        admin.execute(&format!("CREATE DATABASE {name} CHARACTER SET {encoding}")).await;
        admin.execute(&format!("GRANT ALL ON {name}.* TO {user}")).await;
    }
    table.options_at(&table.url_of(&name))
}

/// Databases in encodings of one byte and of several, and in PostgreSQL also what is sent through a pooler.
async fn databases(table: &Table) -> Vec<Options> {
    let mut all = Vec::new();
    for encoding in table.either(&["LATIN1", "KOI8R", "EUC_JP", "SQL_ASCII"][..], &["latin1"]) {
        let options = database(table, encoding).await;
        if let Options::Postgres { url, options } = options.clone() {
            all.push(Options::Postgres { url, options: options.pooler(true).prefix("pooled") });
        }
        all.push(options);
    }
    all
}

fn told() -> Arc<HolderInfo> {
    Arc::new(HolderInfo {
        label: Some("nächtlich \\u{41} 夜間 ж 😀".into()), host: "夜-1".into(), pid: 7
    })
}

fn labelled(claim: Claim) -> Claim {
    Claim { holder: told(), ..claim }
}

async fn label_is_told_whole_and_costs_no_lock_in_any_encoding(table: &Table) {
    for options in databases(table).await {
        let store = options.open().await.unwrap();
        let held = granted(&store, &labelled(claim("a"))).await;
        assert_eq!(store.holders(&held.name).await.unwrap()[0].info, *told());
        assert_eq!(store.list("").await.unwrap()[0].info, *told());
        assert_eq!(store.force_release(&held.name).await.unwrap()[0].info, *told());
        if table.strategy == Strategy::RowLock {
            continue;
        }
        // Those that wait for the connection are carried out together.
        let many: Vec<Claim> = (0..20).map(|number| labelled(claim(&format!("b{number}")))).collect();
        for again in [false, true] {
            let grants = join_all(many.iter().map(|claim| granted(&store, claim))).await;
            assert!(store.list("b").await.unwrap().iter().all(|holder| holder.info == *told()), "{again}");
            join_all(grants.iter().map(async |grant| store.release(grant).await.unwrap())).await;
        }
        if let AttemptAll::Granted(all) =
            store.try_acquire_all(&["c", "d"].map(|name| labelled(claim(name)))).await.unwrap()
        {
            assert_eq!(store.holders(&all[1].name).await.unwrap()[0].info, *told());
        }
        // In a record, which is renewed.
        let grants =
            [granted(&store, &labelled(reader("e"))).await, granted(&store, &labelled(reader("e"))).await];
        store.renew(&grants).await.unwrap();
        let readers = store.holders(&name("e")).await.unwrap();
        assert_eq!(readers.iter().map(|holder| &holder.info).collect::<Vec<_>>(), [&*told(); 2]);
    }
}

async fn list_is_whole_and_sorted_in_any_encoding(table: &Table) {
    for (encoding, high) in [
        ("LATIN1", ["é", "ÿ"]),
        ("KOI8R", ["е", "ф"]),
        ("EUC_JP", ["夜", "熙"]),
        ("SQL_ASCII", ["ÿ", "\u{10FFFF}"]),
    ] {
        let options = database(table, if table.is_postgres() { encoding } else { "latin1" }).await;
        let store = options.open().await.unwrap();
        let [low, high] = high;
        let mut names = vec!["jobs".to_owned(), "jobs0".to_owned(), "jobs/a".to_owned(), "~".to_owned()];
        for first in ["", "jobs/", "~"] {
            names.extend([format!("{first}{low}"), format!("{first}{high}"), format!("{first}{high}/{low}")]);
        }
        for text in &names {
            granted(&store, &claim(text)).await;
        }
        names.sort();
        let prefixes =
            ["", "jobs", "jobs/", "~", "z", low, high, &format!("jobs/{high}"), &format!("~{low}")];
        for prefix in prefixes {
            let listed = store.list(prefix).await.unwrap();
            let listed: Vec<_> = listed.iter().map(|holder| holder.name.as_str()).collect();
            let expected: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
            assert_eq!(listed, expected, "{encoding}: {prefix:?}");
        }
        if !table.is_postgres() {
            break;
        }
    }
}

async fn name_outside_of_the_encoding_is_refused_at_once(table: &Table) {
    let options = database(table, "LATIN1").await;
    let store = options.clone().open().await.unwrap();
    let (_beside, locks) = (granted(&store, &claim("é")).await, store.locks());
    let refused = soon(async { locks.lock("夜").acquire().await }).await.unwrap_err();
    assert!(matches!(refused, Error::Store { .. }), "{refused:?}");
    let said = said(&refused);
    for part in ["\"夜\"", "\"LATIN1\"", "ENCODING 'UTF8'"] {
        assert!(said.contains(part), "{said}");
    }
    if table.strategy == Strategy::RowLock {
        let Options::Postgres { url, .. } = &options else { panic!("not PostgreSQL") };
        let mut transaction = Raw::connect(url).await;
        transaction.execute("BEGIN").await;
        let refused = store.in_transaction(&mut transaction, "夜").await.unwrap_err();
        assert!(matches!(refused, Error::Store { .. }), "{refused:?}");
        store.in_transaction(&mut transaction, "à").await.unwrap();
        return;
    }
    // It costs others that wait for the connection nothing.
    let many: Vec<Claim> = (0..20).map(|number| claim(&number.to_string())).collect();
    let bad = claim("夜");
    let (others, refused) =
        tokio::join!(join_all(many.iter().map(|claim| granted(&store, claim))), store.try_acquire(&bad));
    assert_eq!(others.len(), many.len());
    assert!(!refused.unwrap_err().is_unavailable());
}

async fn prefix_outside_of_the_encoding_is_refused_when_connecting(table: &Table) {
    let options = database(table, "LATIN1").await;
    options.clone().prefix("é/").open().await.unwrap();
    let refused = options.prefix("夜/").open().await.err().unwrap();
    assert!(matches!(refused, Error::Store { .. }), "{refused:?}");
    let said = said(&refused);
    for part in ["\"夜/\"", "\"LATIN1\"", "ENCODING 'UTF8'"] {
        assert!(said.contains(part), "{said}");
    }
}
