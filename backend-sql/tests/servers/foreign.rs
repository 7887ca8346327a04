//! Rows that another program wrote, or damaged: whatever is in them, nothing panics, and no lock that is held is free.

use crate::{Attempt, LEASE, RELEASED, Store, Table, case::cases, claim, granted, name, table::Raw};
use proptest::{
    option,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use serde_json::{Map, Value, json};
use std::{num::NonZeroU32, time::SystemTime};
use tenure_core::{Claim, Grant, Holder, Mode, Moment, Renewal, Standing, StoreError, Token};

cases!("foreign":
    whatever_stands_in_a_row_is_no_panic_and_never_a_wrong_free.of_lease_rows(),
    a_row_that_no_request_can_read_costs_no_other_its_lease.of_lease_rows(),
    whatever_stands_in_a_note_grants_nothing_twice.of_row_locks(),
);

/// How many rows are drawn.
const ROWS: usize = 25;
/// How many notes, each of which somebody waits for.
const NOTES: usize = 5;
/// How many seconds there are at least before anything that lasts is over: longer than a case takes.
const FAR: i64 = 600;
/// What we ask for beside others.
const OF: i64 = 3;

/// A row, as no statement of ours would write it.
#[derive(Clone, Debug)]
struct Row {
    token: i64,
    claim: Option<String>,
    shares: Option<Value>,
    acquired_at: Time,
    expires_at: Time,
    awaited_until: Time,
    awaited_by: Option<String>,
    queue: Option<Value>,
    forced: Option<String>,
    label: Option<String>,
    host: String,
    pid: i64,
}

/// A point in time, as a column can have it.
#[derive(Clone, Copy, Debug)]
enum Time {
    /// So many seconds from now.
    In(i64),
    /// Before and after everything else.
    First,
    Last,
    /// After the year 9999, where there is anything.
    Late,
}

impl Time {
    fn sql(self, table: &Table) -> String {
        match self {
            Self::In(seconds) => table
                .either("now() + interval '{} s'", "UTC_TIMESTAMP(6) + INTERVAL {} SECOND")
                .replace("{}", &seconds.to_string()),
            Self::First => table.either("'-infinity'", "'1000-01-01'").to_owned(),
            Self::Last => table.either("'infinity'", "'9999-12-31 23:59:59.999999'").to_owned(),
            Self::Late => table.either("'294276-12-31'", "'9999-12-31 23:59:59.999999'").to_owned(),
        }
    }

    fn lasts(self) -> bool {
        match self {
            Self::In(seconds) => seconds >= FAR / 10,
            Self::First => false,
            Self::Last | Self::Late => true,
        }
    }
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        6 => (-FAR..2 * FAR).prop_map(Time::In),
        1 => prop::sample::select(vec![Time::First, Time::Last, Time::Late]),
    ]
}

fn micros(seconds_from_now: i64) -> i64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    i64::try_from(now).unwrap() + seconds_from_now * 1_000_000
}

/// Whole numbers: any, those at the ends, and microseconds about now.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]),
        (-FAR..2 * FAR).prop_map(micros),
        // Past the year 9999.
        Just(253_402_300_800_000_000),
    ]
}

/// Texts that the columns have room for.
fn text() -> impl Strategy<Value = String> {
    let any_text = any::<String>().prop_map(|text| text.chars().take(9).collect());
    prop_oneof![
        Just(uuid()),
        any_text,
        prop::sample::select(vec!["", "{}", "{", "[]", "null", "{\"a\":1}", "{\"a\":null}", "\u{1b}[2J\n"])
            .prop_map(ToOwned::to_owned),
    ]
}

fn uuid() -> String {
    "0b0e5c1e-9f0f-4d0c-8f0e-1a2b3c4d5e6f".to_owned()
}

fn odd() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!("7"),
        json!("x"),
        json!(1e300),
        json!(0.5),
        json!([1]),
        json!({}),
        json!(true),
    ])
}

/// A share or a waiter: the members of both, with some of them missing or odd.
fn share() -> impl Strategy<Value = Value> {
    let small = || prop_oneof![4 => (-2..6_i64).prop_map(Value::from), 1 => odd()];
    let large = || prop_oneof![6 => number().prop_map(Value::from), 1 => odd()];
    let members = (small(), small(), large(), large(), large(), large(), 0..40_usize);
    let share = members.prop_map(|(take, of, token, since, until, pid, missing)| {
        let mut share = json!({
            "take": take, "of": of, "token": token, "since": since, "came": since, "until": until, "label": null,
            "host": "h", "pid": pid,
        });
        let members = share.as_object_mut().unwrap();
        if let Some(member) = members.keys().nth(missing).cloned() {
            members.remove(&member);
        }
        share
    });
    prop_oneof![12 => share, 1 => odd()]
}

fn shares() -> impl Strategy<Value = Value> {
    let key = prop_oneof![Just(uuid()), text(), Just("b".to_owned())];
    let shares = prop::collection::vec((key, share()), 0..3)
        .prop_map(|shares| Value::Object(shares.into_iter().collect::<Map<_, _>>()));
    prop_oneof![6 => shares, 1 => odd()]
}

fn row() -> impl Strategy<Value = Row> {
    let held = (option::of(text()), option::of(shares()));
    let texts = (option::of(text()), option::of(shares()), option::of(text()), option::of(text()), text());
    (number(), held, (time(), time(), time()), texts, number()).prop_map(
        |(
            token,
            (claim, shares),
            (acquired_at, expires_at, awaited_until),
            (awaited_by, queue, forced, label, host),
            pid,
        )| Row {
            token,
            claim,
            shares,
            acquired_at,
            expires_at,
            awaited_until,
            awaited_by,
            queue,
            forced,
            label,
            host,
            pid,
        },
    )
}

/// A text as an expression, whatever is in it.
fn quoted(table: &Table, text: Option<&str>) -> String {
    let Some(text) = text else { return "NULL".to_owned() };
    let digits: Vec<String> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    table
        .either("convert_from('\\x{}', 'UTF8')", "CONVERT(X'{}' USING utf8mb4)")
        .replace("{}", &digits.concat())
}

fn document(table: &Table, value: Option<&Value>) -> String {
    let text = value.map(Value::to_string);
    quoted(table, text.as_deref()) + table.either("::jsonb", "")
}

impl Row {
    /// Puts it into the table, unless the server refuses it.
    async fn put(&self, table: &Table, raw: &mut Raw) -> bool {
        let texts = [&self.awaited_by, &self.forced, &self.label, &self.claim];
        let [awaited_by, forced, label, claim] = texts.map(|text| quoted(table, text.as_deref()));
        let [shares, queue] = [&self.shares, &self.queue].map(|value| document(table, value.as_ref()));
        let times = [self.acquired_at, self.expires_at, self.awaited_until].map(|time| time.sql(table));
        let [acquired_at, expires_at, awaited_until] = times;
        let (token, host, pid) = (self.token, quoted(table, Some(&self.host)), self.pid);
        raw.execute(&table.sql("DELETE FROM {t} WHERE name = 'a'")).await;
        let insert = table.sql(
            "INSERT INTO {t} (prefix, name, token, claim, shares, acquired_at, expires_at, awaited_until, awaited_by, queue, \
             forced, label, host, pid) VALUES",
        );
        let values = format!(
            "('', 'a', {token}, {claim}, {shares}, {acquired_at}, {expires_at}, {awaited_until}, {awaited_by}, {queue}, \
             {forced}, {label}, {host}, {pid})"
        );
        raw.try_execute(&format!("{insert} {values}")).await.is_ok()
    }

    /// Whether somebody has it alone.
    fn is_held_alone(&self) -> bool {
        self.expires_at.lasts() && self.claim.is_some()
    }

    /// The shares whose time is not over, as far as anything can be made of them.
    fn live(&self) -> Vec<&Value> {
        let until = micros(FAR / 10);
        let lives = |share: &&Value| share["until"].as_i64().is_some_and(|time| time >= until);
        match &self.shares {
            Some(Value::Object(shares)) if self.expires_at.lasts() => shares.values().filter(lives).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether it may be granted in this mode.
    fn may_be_had(&self, mode: Mode) -> bool {
        if self.is_held_alone() {
            return false;
        }
        let (take, of) = match mode {
            Mode::Exclusive => return self.live().is_empty(),
            Mode::Permit { .. } => (1, OF),
            _ => (0, 0),
        };
        let mut left = of - take;
        self.live().into_iter().all(|share| {
            let taken = share["take"].as_i64().filter(|taken| *taken >= 0);
            left = left.saturating_sub(taken.unwrap_or(i64::MAX));
            share["of"].as_i64() == Some(of) && left >= 0
        })
    }
}

/// Nobody is told that it is free while somebody holds it.
fn told(row: &Row, asked: &str, holders: &Result<Vec<Holder>, StoreError>) {
    let held = row.is_held_alone() || (row.claim.is_none() && !row.live().is_empty());
    let free = holders.as_ref().is_ok_and(Vec::is_empty);
    assert!(!(held && free), "{asked}: nobody holds it: {row:?}");
}

fn permits(number: i64) -> NonZeroU32 {
    NonZeroU32::new(u32::try_from(number).unwrap()).unwrap()
}

/// What a store says of such a row. `None` where the server does not take it.
async fn ask(table: &Table, raw: &mut Raw, store: &Store, beside: &Grant, row: &Row) -> Option<()> {
    row.put(table, raw).await.then_some(())?;
    told(row, "holders", &store.holders(&name("a")).await);
    told(row, "list", &store.list("a").await);
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { take: permits(1), of: permits(OF) }] {
        row.put(table, raw).await;
        let asked = Claim { mode, ..claim("a") };
        let attempt = store.try_acquire(&asked).await;
        let granted = matches!(attempt, Ok(Attempt::Granted(_)));
        assert!(!granted || row.may_be_had(mode), "{mode:?}: {attempt:?}: {row:?}");
        row.put(table, raw).await;
        // What we never held. Whatever becomes of that one, it costs no other its lease.
        let grant = Grant::leased(&asked, Token::MIN, Moment::now());
        let renewed = store.renew(&[grant.clone(), beside.clone()]).await.unwrap();
        assert_eq!(renewed[1], Renewal::Renewed, "{renewed:?}: {row:?}");
        // Refused or carried out, as the row has it: none of them panics.
        let _ = store.convert(&grant, Mode::Shared).await;
        let _ = store.release(&grant).await;
        let _ = store.withdraw(&asked).await;
    }
    row.put(table, raw).await;
    told(row, "force", &store.force_release(&name("a")).await);
    Some(())
}

async fn whatever_stands_in_a_row_is_no_panic_and_never_a_wrong_free(table: &Table) {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let mut raw = table.raw().await;
    for fair in [false, true] {
        let options = if fair { table.options().fair() } else { table.options() };
        let store = options.open().await.unwrap();
        let held = Claim { lease: LEASE * 20, ..claim(&format!("beside.{fair}")) };
        let beside = granted(&store, &held).await;
        let mut asked = 0;
        while asked < ROWS {
            let row = row().new_tree(&mut runner).unwrap().current();
            asked += usize::from(ask(table, &mut raw, &store, &beside, &row).await.is_some());
        }
        assert_eq!(store.release(&beside).await.unwrap(), RELEASED);
    }
}

/// In PostgreSQL infinity has no rest, so a look for what is wrong with the row fails as its renewal does.
async fn a_row_that_no_request_can_read_costs_no_other_its_lease(table: &Table) {
    let store = table.open().await;
    let grants = [granted(&store, &claim("a")).await, granted(&store, &claim("beside")).await];
    let end = Time::Last.sql(table);
    let spoil = "UPDATE {t} SET claim = NULL, shares = '{\"x\": {\"until\": \"long\"}}', expires_at =";
    table.execute(&format!("{spoil} {end} WHERE name = 'a'")).await;
    assert_eq!(store.renew(&grants).await.unwrap(), [Renewal::Unanswered, Renewal::Renewed]);
}

/// The lock is the row that a transaction has locked, whatever the row beside it tells of the last grant.
async fn whatever_stands_in_a_note_grants_nothing_twice(table: &Table) {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let (ours, theirs) = (table.open_with_row("a").await, table.open().await);
    let mut raw = table.raw().await;
    let grant = granted(&ours, &claim("a")).await;
    // Its own note is there, and comes behind none of the others.
    assert_eq!(theirs.holders(&name("a")).await.unwrap().len(), 1);
    for _ in 0..NOTES {
        let row = row().new_tree(&mut runner).unwrap().current();
        let [claim, forced, label] =
            [&row.claim, &row.forced, &row.label].map(|text| quoted(table, text.as_deref()));
        let (token, at, pid) = (row.token, row.acquired_at.sql(table), row.pid);
        let note = table.sql("UPDATE {t} SET")
            + &format!(
                " token = {token}, claim = {claim}, acquired_at = {at}, forced = {forced}, label = {label}, pid = {pid} \
             WHERE prefix = '' AND name = 'a' AND part = 1"
            );
        if raw.try_execute(&note).await.is_err() {
            continue;
        }
        // Both wait for a while for a note that may be on its way.
        let (name, asked) = (name("a"), crate::claim("a"));
        let (_, _, attempt) =
            tokio::join!(theirs.holders(&name), theirs.list(""), theirs.try_acquire(&asked));
        assert!(!matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}: {row:?}");
    }
    let Standing::Session(liveness) = &grant.standing else { panic!("{grant:?}") };
    assert_eq!(liveness.loss(), None);
}
