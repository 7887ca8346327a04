//! Databases that cannot store every character.

use crate::{Table, case::cases, claim, granted, store::Options};

cases!("encodings": list_is_whole_and_sorted_in_any_encoding);

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
