//! `docs/urls.md` says what the code does.

#![cfg(all(
    feature = "memory",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper"
))]

use tenure::urls::{PARAMETERS, SCHEMES};

/// The rows of the table under a heading, without its two lines of header.
fn rows(heading: &str) -> Vec<String> {
    let page = include_str!("../docs/urls.md");
    let (_, section) = page.split_once(heading).unwrap();
    let table =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).map(str::to_owned).collect()
}

#[test]
fn the_page_lists_every_scheme() {
    let row = |scheme: &tenure::urls::Scheme| {
        format!("| `{}` | `{}` | {} |", scheme.form, scheme.feature, scheme.about)
    };
    assert_eq!(rows("# Stores and their URLs"), SCHEMES.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn the_page_lists_every_parameter() {
    let row = |parameter: &tenure::urls::Parameter| {
        let stores =
            if parameter.stores.is_empty() { "every store".to_owned() } else { parameter.stores.join(", ") };
        let (name, takes) = (parameter.name, parameter.takes);
        format!("| `{name}` | {stores} | {takes} | {} | {} |", parameter.default, parameter.about)
    };
    assert_eq!(rows("## Parameters"), PARAMETERS.iter().map(row).collect::<Vec<_>>());
}
