//! Rows that another program wrote, or damaged: whatever is in them, nothing panics, and no lock that is held is free.

#[path = "../common/damaged_rows.rs"]
mod damaged_rows;

use crate::{
    Attempt, LEASE, RELEASED, Store, Table, case::cases, chain, claim, granted, name, store::Options,
    table::Raw, until,
};
use damaged_rows::{Kept, Row, ask, number, rows, rows_that_were_wrong_once, texts};
use proptest::{
    option,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use std::num::NonZeroU32;
use tenure_core::{Claim, Grant, LatchStep, Mode, Renewal, Standing};

cases!("foreign":
    whatever_stands_in_a_row_is_no_panic_and_never_a_wrong_free.of_lease_rows(),
    rows_that_were_wrong_once_are_not_wrong_again.of_lease_rows(),
    a_row_that_is_not_ours_says_so_and_lets_nobody_in.of_lease_rows(),
    a_row_that_cannot_be_renewed_costs_no_other_its_lease.of_lease_rows(),
    a_row_with_the_last_token_costs_no_other_name.of_lease_rows(),
    a_latch_that_is_not_ours_says_so,
    whatever_stands_in_a_note_grants_nothing_twice.of_row_locks(),
);

/// How many rows are drawn.
const ROWS: usize = 25;
/// How many notes, each of which somebody waits for.
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
        let sweeps = table.open().await;
        // Every name that is new comes after its token once it is swept.
        table.execute("DELETE FROM {t} WHERE name = 'a'").await;
        sweeps.sweep().await.unwrap();
        // Opened after that sweep, it does not sweep by itself.
        let store = options.open().await.unwrap();
        let beside = granted(&store, &Claim { lease: LEASE * 20, ..claim("beside") }).await;
        Self { table, raw: table.raw().await, store, beside }
    }

    async fn ask(&mut self, row: &Row) {
        let Self { table, raw, store, beside } = self;
        let asked = ask(&**store, beside, row, async || put(row, table, raw).await).await;
        asked.unwrap_or_else(|error| panic!("{error}"));
    }

    async fn end(self) {
        assert_eq!(self.store.release(&self.beside).await.unwrap(), RELEASED);
    }
}

async fn whatever_stands_in_a_row_is_no_panic_and_never_a_wrong_free(table: &Table) {
    let (mut runner, rows) = (runner(), rows(&texts()));
    for options in [table.options(), table.options().fair()] {
        let mut asking = Asking::begin(table, options).await;
        for _ in 0..ROWS {
            asking.ask(&rows.new_tree(&mut runner).unwrap().current()).await;
        }
        asking.end().await;
    }
}

async fn rows_that_were_wrong_once_are_not_wrong_again(table: &Table) {
    for options in [table.options(), table.options().fair()] {
        let mut asking = Asking::begin(table, options).await;
        for row in rows_that_were_wrong_once() {
            asking.ask(&row).await;
        }
        asking.end().await;
    }
}

/// A claim that is no text, where a column takes it.
fn no_text(table: &Table) -> Option<&'static str> {
    table.either(None, Some("claim = X'FF'"))
}

async fn a_row_that_is_not_ours_says_so_and_lets_nobody_in(table: &Table) {
    let store = table.open().await;
    let beside = granted(&store, &Claim { lease: LEASE * 20, ..claim("beside") }).await;
    let mut spoils = vec![
        "record = '{broken'",
        "record = '{\"lent\": []}'",
        "claim = 'somebody'",
        "mode = 'sometimes'",
        "awaited_by = 'somebody'",
        "pid = -1",
        "token = 0",
    ];
    spoils.extend(no_text(table));
    for spoil in spoils {
        let held = granted(&store, &claim("a")).await;
        table.execute(&format!("UPDATE {{t}} SET {spoil} WHERE name = 'a'")).await;
        let refused = [
            store.try_acquire(&claim("a")).await.map(drop),
            store.holders(&held.name).await.map(drop),
            store.force_release(&held.name).await.map(drop),
        ];
        for refused in refused {
            let error = refused.expect_err(spoil);
            let said = chain(&error);
            let words = [
                "the row of \"a\" is not what tenure writes: ",
                "; delete it once every lease that it could hold has expired",
            ];
            assert!(
                !error.is_unavailable() && words.iter().all(|word| said.contains(word)),
                "{spoil}: {said}"
            );
        }
        // Nobody knows who holds it, and it hides no other.
        let listed = store.list("").await.unwrap();
        let listed: Vec<_> = listed.iter().map(|holder| (&*holder.name, holder.claim)).collect();
        assert_eq!(listed, [("a", None), ("beside", Some(beside.claim))], "{spoil}");
        table.execute("DELETE FROM {t} WHERE name = 'a'").await;
    }
    granted(&store, &claim("a")).await;
}

/// Whichever statement renews it, and whatever is wrong: it cannot be read, or cannot be written.
async fn a_row_that_cannot_be_renewed_costs_no_other_its_lease(table: &Table) {
    let store = table.open().await;
    // A part of a renewal is left unanswered when a twelfth of the shortest lease has passed.
    let long = |text: &str| Claim { lease: LEASE * 20, ..claim(text) };
    let reader = |text: &str| Claim { mode: Mode::Shared, ..long(text) };
    // The columns name the first. Of the others, who share a name, only a record does.
    let mut others = vec![granted(&store, &long("alone")).await];
    for _ in 0..2 {
        others.push(granted(&store, &reader("shared")).await);
    }
    let last = "version = 9223372036854775807";
    let mut spoils = vec![
        (1, "claim = 'somebody'"),
        (1, "record = '{broken'"),
        (1, last),
        (2, "record = '{broken'"),
        (2, "token = token + 1"),
        (2, last),
    ];
    spoils.extend(no_text(table).map(|spoil| (1, spoil)));
    for (number, (readers, spoil)) in spoils.into_iter().enumerate() {
        let spoilt = format!("spoilt{number}");
        let mut grants = Vec::new();
        for _ in 0..readers {
            grants.push(granted(&store, &reader(&spoilt)).await);
        }
        table.execute(&format!("UPDATE {{t}} SET {spoil} WHERE name = '{spoilt}'")).await;
        grants.extend(others.iter().cloned());
        let told = store.renew(&grants).await.unwrap();
        let (spoilt, others) = told.split_at(readers);
        assert!(spoilt.iter().all(|told| *told == Renewal::Unanswered), "{spoil}: {spoilt:?}");
        assert_eq!(others, [Renewal::Renewed; 3], "{spoil}");
    }
}

/// It stays, or every name that is new would have to come after it.
async fn a_row_with_the_last_token_costs_no_other_name(table: &Table) {
    let store = table.open().await;
    for text in ["damaged", "idle"] {
        let grant = granted(&store, &claim(text)).await;
        assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
    }
    table.execute("UPDATE {t} SET token = 9223372036854775807 WHERE name = 'damaged'").await;
    table.execute("UPDATE {t} SET expires_at = expires_at - {day} - {day} WHERE name <> ''").await;
    // The first release sweeps too, in the background.
    store.sweep().await.unwrap();
    until(async || table.number("SELECT COUNT(*) FROM {t} WHERE name = 'idle'").await == 0).await;
    granted(&store, &claim("idle")).await;
    assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE name = 'damaged'").await, 1);
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
        let said = chain(&error);
        assert!(!error.is_unavailable() && said.contains("not what tenure writes"), "{step:?}: {said}");
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

/// The lock is the row that a transaction has locked, whatever the row beside it tells of the last grant.
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
