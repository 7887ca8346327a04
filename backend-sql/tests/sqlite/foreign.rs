//! Rows that another program wrote, or damaged: whatever is in them, nothing panics, and no lock that is held is free.

use crate::{File, LEASE, claim, granted, name};
use proptest::{
    option,
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use sqlx::SqliteConnection;
use std::{
    num::NonZeroU32,
    time::{Duration, SystemTime},
};
use tenure_core::{Attempt, Backend, Claim, Grant, Holder, Locks, Mode, Moment, Renewal, StoreError, Token};
use tenure_sql::SqliteBackend;

/// Long before any lease of ours would be over, and longer than a case takes.
const FAR: i64 = 600_000;
/// What we ask for beside others.
const OF: i64 = 3;

/// A row, as no statement of ours would write it. Texts are bytes, because SQLite does not look whether they are UTF-8.
#[derive(Clone, Debug)]
struct Row {
    version: i64,
    token: i64,
    claim: Option<Vec<u8>>,
    mode: Option<Vec<u8>>,
    since: i64,
    expires_at: i64,
    awaited_until: i64,
    awaited_by: Option<Vec<u8>>,
    label: Option<Vec<u8>>,
    host: Vec<u8>,
    pid: i64,
    record: Option<Kept>,
}

#[derive(Clone, Debug)]
enum Kept {
    Text(Vec<u8>),
    Of(Value),
}

impl Kept {
    fn text(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Of(record) => record.to_string().into_bytes(),
        }
    }
}

fn now() -> i64 {
    i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

/// Whole numbers: any, those at the ends, and those about now in this unit of a second.
fn number(unit: i64) -> impl Strategy<Value = i64> {
    let now = now() / 1000 * unit;
    prop_oneof![
        any::<i64>(),
        prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]),
        (-FAR..2 * FAR).prop_map(move |off| now + off * unit),
        // Past the year 9999.
        Just(253_402_300_800 * unit),
    ]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(uuid()),
        any::<String>().prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40),
        prop::sample::select(vec!["", "{}", "{", "[]", "null", "{\"a\":1}", "{\"a\":null}", "\u{1b}[2J\n"])
            .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

fn uuid() -> Vec<u8> {
    b"0b0e5c1e-9f0f-4d0c-8f0e-1a2b3c4d5e6f".to_vec()
}

fn value(unit: i64) -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => number(unit).prop_map(Value::from),
        1 => prop::sample::select(vec![json!(null), json!("7"), json!(1e300), json!([1]), json!({}), json!(true)]),
    ]
}

fn mode() -> BoxedStrategy<Value> {
    let number = || prop_oneof![4 => (-2..6_i64).prop_map(Value::from), 1 => value(1)];
    prop_oneof![
        3 => prop::sample::select(vec![json!("Exclusive"), json!("Shared")]),
        3 => (number(), prop_oneof![3 => Just(json!(OF)), 1 => number()])
            .prop_map(|(take, of)| json!({ "Permit": { "take": take, "of": of } })),
        1 => prop::sample::select(vec![json!("Permit"), json!(null), json!(5), json!({})]),
    ]
    .boxed()
}

fn claimed() -> impl Strategy<Value = Value> {
    let ours = String::from_utf8(uuid()).unwrap();
    prop_oneof![6 => Just(json!(ours)), 1 => any::<String>().prop_map(Value::from), 1 => value(1)]
}

/// One who holds the name or waits for it: the members of both, with one of them missing now and then.
fn one() -> BoxedStrategy<Value> {
    let members =
        (claimed(), mode(), value(1_000_000), value(1_000_000), value(1_000_000), value(1), 0..40_usize);
    let one = members.prop_map(|(claim, mode, token, since, until, pid, missing)| {
        let mut one = json!({
            "claim": claim, "mode": mode, "token": token, "since": since, "until": until, "alone": true,
            "holder": { "label": null, "host": "h", "pid": pid },
        });
        let members = one.as_object_mut().unwrap();
        if let Some(member) = members.keys().nth(missing).cloned() {
            members.remove(&member);
        }
        one
    });
    prop_oneof![12 => one, 1 => Just(json!(5)), 1 => Just(json!("x")), 1 => Just(json!([]))].boxed()
}

fn record() -> BoxedStrategy<Value> {
    let some = |most| prop::collection::vec(one(), 0..most);
    let forced = prop::collection::vec((claimed(), value(1_000_000)), 0..2);
    let members = (some(3), some(3), option::of(one()), forced, 0..20_usize);
    members
        .prop_map(|(held, queue, mark, forced, missing)| {
            let mut record = json!({ "held": held, "queue": queue, "mark": mark, "forced": forced });
            let members = record.as_object_mut().unwrap();
            if let Some(member) = members.keys().nth(missing).cloned() {
                members.remove(&member);
            }
            record
        })
        .boxed()
}

fn row() -> impl Strategy<Value = Row> {
    let record = option::of(prop_oneof![4 => record().prop_map(Kept::Of), 1 => text().prop_map(Kept::Text)]);
    let mode =
        option::of(prop_oneof![3 => mode().prop_map(|mode| mode.to_string().into_bytes()), 1 => text()]);
    let held = (option::of(text()), mode, record, prop::bool::weighted(0.9));
    let times = (number(1000), number(1000), number(1000));
    let texts = (option::of(text()), option::of(text()), text());
    let token = prop_oneof![1 => number(1_000_000), 3 => 0..i64::MAX];
    (number(1), token, held, times, texts, number(1)).prop_map(
        |(version, token, (claim, mode, record, agrees), (since, expires_at, awaited_until), texts, pid)| {
            let (awaited_by, label, host) = texts;
            let mut row = Row {
                version,
                token,
                claim,
                mode,
                since,
                expires_at,
                awaited_until,
                awaited_by,
                label,
                host,
                pid,
                record,
            };
            if let (Some(Kept::Of(record)), true) = (&mut row.record, agrees) {
                record["token"] = token.into();
            }
            row
        },
    )
}

impl Row {
    async fn put(&self, raw: &mut SqliteConnection) {
        let insert = "INSERT OR REPLACE INTO tenure_locks VALUES ('', 'a', ?1, ?2, CAST(?3 AS TEXT), CAST(?4 AS TEXT), ?5, ?6, \
             ?7, CAST(?8 AS TEXT), CAST(?9 AS TEXT), CAST(?10 AS TEXT), ?11, CAST(?12 AS TEXT))";
        let insert = sqlx::query(insert)
            .bind(self.version)
            .bind(self.token)
            .bind(self.claim.clone())
            .bind(self.mode.clone())
            .bind(self.since)
            .bind(self.expires_at)
            .bind(self.awaited_until)
            .bind(self.awaited_by.clone())
            .bind(self.label.clone())
            .bind(self.host.clone())
            .bind(self.pid)
            .bind(self.record.as_ref().map(Kept::text));
        insert.execute(raw).await.unwrap();
    }

    /// How those hold it whose time is not over for as long as a case takes, as far as anything can be made of them.
    fn live(&self) -> Vec<Value> {
        let later = now() + FAR / 10;
        let lives = |one: &&Value| one["until"].as_i64().is_some_and(|until| until >= later * 1000);
        match &self.record {
            Some(Kept::Of(record)) => {
                let held = record["held"].as_array().into_iter().flatten();
                held.filter(lives).map(|one| one["mode"].clone()).collect()
            }
            None if self.claim.is_some() && self.expires_at >= later => match &self.mode {
                None => vec![json!("Exclusive")],
                Some(mode) => vec![serde_json::from_slice(mode).unwrap_or_default()],
            },
            Some(Kept::Text(_)) | None => Vec::new(),
        }
    }

    /// Whether it may be granted in this mode.
    fn may_be_had(&self, mode: Mode) -> bool {
        let mut left = OF - 1;
        self.live().into_iter().all(|other| match mode {
            Mode::Exclusive => false,
            Mode::Permit { .. } => {
                let permit = &other["Permit"];
                let taken = permit["take"].as_i64().filter(|taken| *taken > 0);
                left = left.saturating_sub(taken.unwrap_or(i64::MAX));
                permit["of"].as_i64() == Some(OF) && left >= 0
            }
            _ => other == json!("Shared"),
        })
    }
}

/// Nobody is told that it is free while somebody holds it.
fn told(row: &Row, asked: &str, holders: &Result<Vec<Holder>, StoreError>) -> Result<(), TestCaseError> {
    let held = !row.live().is_empty();
    let free = holders.as_ref().is_ok_and(Vec::is_empty);
    prop_assert!(!(held && free), "{asked}: nobody holds it");
    Ok(())
}

async fn ask(
    raw: &mut SqliteConnection,
    backend: &SqliteBackend,
    locks: &Locks,
    beside: &Grant,
    row: &Row,
) -> Result<(), TestCaseError> {
    row.put(raw).await;
    told(row, "holders", &backend.holders(&name("a")).await)?;
    told(row, "list", &backend.list("a").await)?;
    let number = |n: i64| NonZeroU32::new(u32::try_from(n).unwrap()).unwrap();
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { take: number(1), of: number(OF) }] {
        row.put(raw).await;
        let asked = Claim { mode, ..claim("a") };
        let attempt = backend.try_acquire(&asked).await;
        let granted = matches!(attempt, Ok(Attempt::Granted(_)));
        prop_assert!(!granted || row.may_be_had(mode), "{mode:?}: {attempt:?}");
        // What we never held, and what stands in the row.
        let grant = Grant::leased(&asked, Token::try_from(1_i64).unwrap(), Moment::now());
        row.put(raw).await;
        // Whatever becomes of that one, it costs no other its lease.
        let renewed = backend.renew(&[grant.clone(), beside.clone()]).await.unwrap();
        prop_assert_eq!(renewed[1], Renewal::Renewed, "{:?}", renewed);
        let _ = backend.convert(&grant, Mode::Shared).await;
        let _ = backend.release(&grant).await;
        let _ = backend.withdraw(&asked).await;
    }
    row.put(raw).await;
    let waited = locks.lock("a").lease(LEASE).wait(Duration::from_millis(5)).acquire().await;
    prop_assert!(waited.is_err() || row.may_be_had(Mode::Exclusive), "{waited:?}");
    drop(waited);
    row.put(raw).await;
    let waits = Claim { waits: true, ..claim("a") };
    let _ = tokio::time::timeout(Duration::from_millis(5), backend.acquire(&waits)).await;
    row.put(raw).await;
    told(row, "force", &backend.force_release(&name("a")).await)
}

/// Asks of every such row, with a queue and without.
fn ask_of(rows: &impl Strategy<Value = Row>, cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let file = File::new();
    for fair in [false, true] {
        let open = || async { SqliteBackend::open(file.options().fair(fair)).await.unwrap() };
        let backend = runtime.block_on(open());
        let beside = runtime.block_on(granted(&backend, &claim(&format!("beside.{fair}"))));
        let locks = Locks::new(runtime.block_on(open()));
        let raw = tokio::sync::Mutex::new(runtime.block_on(file.raw()));
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let run = runner.run(rows, |row| {
            runtime.block_on(async { ask(&mut *raw.lock().await, &backend, &locks, &beside, &row).await })
        });
        run.unwrap_or_else(|error| panic!("fair={fair}: {error}"));
    }
}

#[test]
fn whatever_stands_in_a_row_is_no_panic_and_never_a_wrong_free() {
    ask_of(&row(), 300);
}

/// What chance finds only now and then.
#[test]
fn rows_that_were_wrong_once() {
    let later = now() + 2 * FAR;
    let free = Row {
        version: 1,
        token: 1,
        claim: None,
        mode: None,
        since: 0,
        expires_at: later,
        awaited_until: 0,
        awaited_by: None,
        label: None,
        host: b"h".to_vec(),
        pid: 1,
        record: None,
    };
    let ours = String::from_utf8(uuid()).unwrap();
    let with = |member: &str, value: Value| {
        let mut one = json!({
            "claim": ours, "mode": { "Permit": { "take": 1, "of": OF } }, "token": 1, "since": 0, "until": later * 1000,
            "alone": true, "holder": { "label": null, "host": "h", "pid": 1 },
        });
        match value {
            Value::Null => drop(one.as_object_mut().unwrap().remove(member)),
            value => one[member] = value,
        }
        one
    };
    let permits = |take, of| json!({ "Permit": { "take": take, "of": of } });
    let kept = |record| Row { record: Some(Kept::Of(record)), ..free.clone() };
    let holding = |one| kept(json!({ "token": 1, "held": [one] }));
    let waiting = |one| kept(json!({ "token": 1, "queue": [one] }));
    let rows = [
        Row { claim: Some(b"{}".to_vec()), ..free.clone() },
        Row { claim: Some(uuid()), token: 0, ..free.clone() },
        Row { claim: Some(uuid()), token: -1, ..free.clone() },
        Row { claim: Some(uuid()), mode: Some(b"x".to_vec()), ..free.clone() },
        Row { version: i64::MAX, ..free.clone() },
        // Records that know of nobody, beside a token that somebody had.
        kept(json!({})),
        kept(json!([])),
        Row { claim: Some(uuid()), ..kept(json!({ "x": 1 })) },
        holding(with("since", json!(i64::MIN))),
        holding(with("since", json!(u64::MAX))),
        holding(with("until", json!(u64::MAX))),
        holding(with("mode", permits(-5, OF))),
        holding(with("mode", permits(0, OF))),
        holding(with("mode", json!({ "Permit": { "take": "many", "of": OF } }))),
        holding(with("mode", json!({ "Permit": { "of": OF } }))),
        holding(with("mode", json!({ "Permit": { "take": 1 } }))),
        holding(with("mode", permits(7, OF))),
        holding(with("mode", Value::Null)),
        holding(with("token", json!(0))),
        waiting(with("until", json!(i64::MIN))),
        waiting(with("until", json!(u64::MAX))),
        kept(json!({ "token": 1, "mark": with("until", json!(u64::MAX)) })),
        kept(json!({ "token": i64::MAX })),
    ];
    for row in rows {
        ask_of(&Just(row), 1);
    }
}
