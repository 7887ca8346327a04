//! Rows match the page on formats, and this build reads them. Every test program of a table includes this.

use crate::lease_rows::Rows;
use tenure_conformance::format::{Page, Scene, token_ahead};

pub(crate) const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/formats.md");

const TABLE: &str = "tenure_locks";

/// The columns of lease rows. What is NULL is not written down.
pub(crate) const COLUMNS: [&str; 14] = [
    "prefix",
    "name",
    "version",
    "token",
    "claim",
    "mode",
    "since",
    "expires_at",
    "awaited_until",
    "awaited_by",
    "label",
    "host",
    "pid",
    "record",
];

/// The rows that a condition finds in their order, each as the statement that makes it.
pub(crate) async fn rows_as_statements(
    rows: &impl Rows,
    table: &str,
    columns: &[&str],
    condition: &str,
) -> Vec<String> {
    let mut lines: Vec<[Vec<String>; 2]> = Vec::new();
    for column in columns {
        let cell = format!("SELECT COALESCE(CAST({column} AS {{text}}), '-') FROM {{t}} {condition}");
        let cells = rows.texts(&cell).await;
        lines.resize_with(cells.len(), Default::default);
        for ([names, values], cell) in lines.iter_mut().zip(cells).filter(|(_, cell)| cell != "-") {
            names.push((*column).to_owned());
            // Databases write times in different ways.
            values.push(match *column {
                "acquired_at" => "CURRENT_TIMESTAMP".to_owned(),
                _ => format!("'{}'", without_bells(&cell)),
            });
        }
    }
    let statement = |[names, values]: &[Vec<String>; 2]| {
        format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "))
    };
    lines.iter().map(statement).collect()
}

/// Without the numbers of waiters' bells, which MySQL and MariaDB have.
fn without_bells(cell: &str) -> String {
    let mut parts = cell.split("\"bell\":");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ','))
}

pub(crate) async fn rows_are_written_as_the_page_says(rows: &impl Rows) {
    let [client, other] = [rows.client(true).await, rows.client(true).await];
    let scene = Scene::play(&*client, other).await.unwrap();
    let statements = rows_as_statements(rows, TABLE, &COLUMNS, "WHERE name <> '' ORDER BY name").await;
    Page::of(PAGE, "SQL").check(&scene, &statements).unwrap();
}

pub(crate) async fn rows_of_the_page_are_read(rows: &impl Rows) {
    for fair in [false, true] {
        let client = rows.client(fair).await;
        client.holders(&crate::name("any")).await.unwrap();
        rows.execute("DELETE FROM {t}").await;
        let entries = Page::of(PAGE, "SQL").entries(token_ahead()).unwrap();
        for statement in &entries.lines {
            rows.execute(&statement.replacen(TABLE, "{t}", 1)).await;
        }
        entries.read(&*client).await.unwrap();
    }
}
