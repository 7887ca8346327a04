//! Rows that another program wrote or damaged: none makes a client panic or report a held lock as free.

#[path = "../common/damaged_rows.rs"]
mod damaged_rows;

use crate::{
    Attempt, Backend, RELEASED, Store, Table, case::cases, claim, granted, lease_rows::Rows, name, said,
    store::Options, table::Raw,
};
use damaged_rows::{Kept, Row, ask, number, rows, rows_that_were_wrong_once, texts};
use proptest::{
    option,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use std::{collections::HashSet, num::NonZeroU32};
use tenure_core::{Grant, LatchStep, Standing};

cases!("foreign":
    whatever_stands_in_a_row_is_no_panic_and_never_a_wrong_free.of_lease_rows(),
    a_latch_that_is_not_ours_says_so,
    whatever_stands_in_a_note_grants_nothing_twice.of_row_locks(),
);

/// How many rows are drawn.
const ROWS: usize = 25;
/// How many notes are drawn: few, because clients wait for each.
const NOTES: usize = 5;

fn runner() -> TestRunner {
    TestRunner::new(Config { failure_persistence: None, ..Config::default() })
}

/// Puts the row into the table.
async fn put(row: &Row, table: &Table, raw: &mut Raw) {
    let Row { version, token, since, expires_at, awaited_until, pid, .. } = row;
    let record = row.record.as_ref().map(Kept::text);
    let texts = [&row.claim, &row.mode, &row.awaited_by, &row.label, &record];
    let [claim, mode, awaited_by, label, record] =
        texts.map(|text| text.as_ref().map_or_else(|| "NULL".to_owned(), |text| table.quoted(text)));
    let host = table.quoted(&row.host);
    let put = format!(
        "BEGIN; DELETE FROM {{t}} WHERE name = 'a'; \
         INSERT INTO {{t}} (prefix, name, version, token, claim, mode, since, expires_at, awaited_until, awaited_by, label, \
         host, pid, record{bell}) \
         VALUES ('', 'a', {version}, {token}, {claim}, {mode}, {since}, {expires_at}, {awaited_until}, {awaited_by}, {label}, \
         {host}, {pid}, {record}{rung}); COMMIT",
        bell = table.either("", ", awaited_bell"),
        rung = table.either(String::new(), format!(", {token}")),
    );
    raw.execute(&table.sql(&put)).await;
}

/// Asks of rows, while another lock is held.
struct Asking<'t> {
    table: &'t Table,
    raw: Raw,
    store: Store,
    beside: Grant,
}

impl<'t> Asking<'t> {
    async fn begin(table: &'t Table, options: Options) -> Self {
        drop(table.open().await);
        // Every name that is new comes after its token once it is swept.
        table.execute("DELETE FROM {t} WHERE name = 'a'").await;
        table.swept().await;
        // Opened after that sweep, it does not sweep by itself.
        let store = options.open().await.unwrap();
        let beside = granted(&store, &claim("beside")).await;
        Self { table, raw: table.raw().await, store, beside }
    }

    async fn ask(&mut self, row: &Row) {
        let Self { table, raw, store, beside } = self;
        let asked = ask(store, beside, row, async || put(row, table, raw).await).await;
        asked.unwrap_or_else(|error| panic!("{error}"));
    }

    async fn end(self) {
        assert_eq!(self.store.release(&self.beside).await.unwrap(), RELEASED);
    }
}

/// Those that were wrong once, and others at random.
async fn whatever_stands_in_a_row_is_no_panic_and_never_a_wrong_free(table: &Table) {
    let (mut runner, random) = (runner(), rows(&texts()));
    for options in [table.options(), table.options().fair(true)] {
        let mut asking = Asking::begin(table, options).await;
        let drawn = (0..ROWS).map(|_| random.new_tree(&mut runner).unwrap().current());
        let mut versions = HashSet::new();
        for mut row in rows_that_were_wrong_once().into_iter().chain(drawn) {
            // No version comes again, as clients may trust. None comes after the last.
            while row.version < i64::MAX && !versions.insert(row.version) {
                row.version = row.version.wrapping_sub(1000);
            }
            asking.ask(&row).await;
        }
        asking.end().await;
    }
}

async fn a_latch_that_is_not_ours_says_so(table: &Table) {
    let store = table.open().await;
    let (latch, of) = (name("a"), NonZeroU32::new(2).unwrap());
    let step = LatchStep::CountDown { party: name("m1"), of };
    assert_eq!(store.latch(&latch, &step).await.unwrap().missing(), 1);
    let latches = if table.strategy == tenure_sql::Strategy::RowLock { "{t}_latches" } else { "{t}" };
    table.execute(&format!("UPDATE {latches} SET record = '{{\"of\": 2}}' WHERE name = '\u{1}a'")).await;
    for step in [LatchStep::Look, step] {
        let error = store.latch(&latch, &step).await.unwrap_err();
        let said = said(&error);
        assert!(
            !error.is_unavailable() && said.contains("damaged or from another program"),
            "{step:?}: {said}"
        );
    }
    // Its name is no lock's.
    let grant = granted(&store, &claim("a")).await;
    assert_eq!(store.list("").await.unwrap().len(), 1);
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

/// Points in time, as a note's column can have them, in PostgreSQL and in MySQL.
fn time() -> impl Strategy<Value = [String; 2]> {
    let near = (-600..1200_i64).prop_map(|seconds| {
        [format!("now() + interval '{seconds} s'"), format!("UTC_TIMESTAMP(6) + INTERVAL {seconds} SECOND")]
    });
    let last = "'9999-12-31 23:59:59.999999'";
    let far = [["'-infinity'", "'1000-01-01'"], ["'infinity'", last], ["'294276-12-31'", last]];
    prop_oneof![6 => near, 1 => prop::sample::select(far.map(|time| time.map(str::to_owned)).to_vec())]
}

/// The lock is the row that a transaction has locked, and no note beside it changes that.
async fn whatever_stands_in_a_note_grants_nothing_twice(table: &Table) {
    let mut runner = runner();
    let text = || option::of(texts());
    let notes = (number(1_000_000), (text(), text(), text()), time(), number(1));
    let (ours, theirs) = (table.open_with_row("a").await, table.open().await);
    let mut raw = table.raw().await;
    let grant = granted(&ours, &claim("a")).await;
    // Its own note is there, and comes behind none of the others.
    assert_eq!(theirs.holders(&name("a")).await.unwrap().len(), 1);
    for _ in 0..NOTES {
        let (token, (claim, forced, label), [postgres, mysql], pid) =
            notes.new_tree(&mut runner).unwrap().current();
        let [claim, forced, label] = [claim, forced, label]
            .map(|text| text.map_or_else(|| "NULL".to_owned(), |text| table.quoted(&text)));
        let at = table.either(postgres, mysql);
        let note = format!(
            "token = {token}, claim = {claim}, acquired_at = {at}, forced = {forced}, label = {label}, pid = {pid}"
        );
        raw.execute(
            &table.sql(&format!("UPDATE {{t}} SET {note} WHERE prefix = '' AND name = 'a' AND part = 1")),
        )
        .await;
        // Both wait for a while for a note that may be on its way.
        let (name, asked) = (name("a"), crate::claim("a"));
        let (_, _, attempt) =
            tokio::join!(theirs.holders(&name), theirs.list(""), theirs.try_acquire(&asked));
        assert!(!matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}: {note}");
    }
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    assert_eq!(liveness.loss(), None);
}
