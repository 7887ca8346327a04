//! Rows that another program wrote, or damaged: whatever is in them, nothing panics, and no lock that is held is free.

use crate::{File, LEASE, claim, granted, name};
use proptest::{
    option,
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Map, Value, json};
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
    token: i64,
    claim: Option<Vec<u8>>,
    shares: Option<Shares>,
    acquired_at: i64,
    expires_at: i64,
    awaited_until: i64,
    awaited_by: Option<Vec<u8>>,
    queue: Option<Vec<u8>>,
    forced: Option<Vec<u8>>,
    label: Option<Vec<u8>>,
    host: Vec<u8>,
    pid: i64,
}

#[derive(Clone, Debug)]
enum Shares {
    Text(Vec<u8>),
    Of(Map<String, Value>),
}

impl Shares {
    fn text(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Of(shares) => json!(shares).to_string().into_bytes(),
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

/// A share or a waiter: the members of both, with some of them missing.
fn share() -> impl Strategy<Value = Value> {
    let small = || prop_oneof![4 => (-2..6_i64).prop_map(Value::from), 1 => value(1)];
    let members = (small(), small(), value(1), value(1_000_000), value(1_000_000), value(1), 0..40_usize);
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
    prop_oneof![12 => share, 1 => Just(json!(5)), 1 => Just(json!("x")), 1 => Just(json!([]))]
}

fn shares() -> impl Strategy<Value = Map<String, Value>> {
    let key = prop_oneof![Just(String::from_utf8(uuid()).unwrap()), any::<String>(), Just("b".to_owned())];
    prop::collection::vec((key, share()), 0..3).prop_map(|shares| shares.into_iter().collect())
}

fn row() -> impl Strategy<Value = Row> {
    let held = (
        option::of(text()),
        option::of(prop_oneof![3 => shares().prop_map(Shares::Of), 1 => text().prop_map(Shares::Text)]),
    );
    let queue = option::of(
        prop_oneof![3 => shares().prop_map(|queue| json!(queue).to_string().into_bytes()), 1 => text()],
    );
    let times = (number(1000), number(1000), number(1000));
    let texts = (option::of(text()), queue, option::of(text()), option::of(text()), text());
    (number(1_000_000), held, times, texts, number(1)).prop_map(
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

impl Row {
    async fn put(&self, raw: &mut SqliteConnection) {
        let insert = "INSERT OR REPLACE INTO tenure_locks VALUES ('', 'a', ?1, CAST(?2 AS TEXT), CAST(?3 AS TEXT), ?4, ?5, ?6, \
             CAST(?7 AS TEXT), CAST(?8 AS TEXT), CAST(?9 AS TEXT), CAST(?10 AS TEXT), CAST(?11 AS TEXT), ?12)";
        let insert = sqlx::query(insert)
            .bind(self.token)
            .bind(self.claim.clone())
            .bind(self.shares.as_ref().map(Shares::text))
            .bind(self.acquired_at)
            .bind(self.expires_at)
            .bind(self.awaited_until)
            .bind(self.awaited_by.clone())
            .bind(self.queue.clone())
            .bind(self.forced.clone())
            .bind(self.label.clone())
            .bind(self.host.clone())
            .bind(self.pid);
        insert.execute(raw).await.unwrap();
    }

    /// Whether its time is not over for as long as a case takes.
    fn lasts(&self) -> bool {
        self.expires_at >= now() + FAR / 10
    }

    /// Whether somebody has it alone.
    fn is_held_alone(&self) -> bool {
        self.lasts() && self.claim.is_some()
    }

    /// The shares whose time is not over, as far as anything can be made of them.
    fn live(&self) -> Vec<&Value> {
        let until = (now() + FAR / 10) * 1000;
        let lives = |share: &&Value| share["until"].as_i64().is_some_and(|time| time >= until);
        match &self.shares {
            Some(Shares::Of(shares)) if self.lasts() => shares.values().filter(lives).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether it may be granted in this mode.
    fn may_be_had(&self, mode: Mode) -> bool {
        if self.is_held_alone() {
            return false;
        }
        let (take, of) = match mode {
            Mode::Exclusive => return !(self.lasts() && self.shares.is_some()),
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
fn told(row: &Row, asked: &str, holders: &Result<Vec<Holder>, StoreError>) -> Result<(), TestCaseError> {
    let held = row.is_held_alone() || (row.claim.is_none() && !row.live().is_empty());
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
        token: 1,
        claim: None,
        shares: None,
        acquired_at: 0,
        expires_at: later,
        awaited_until: 0,
        awaited_by: None,
        queue: None,
        forced: None,
        label: None,
        host: b"h".to_vec(),
        pid: 1,
    };
    let members = json!({
        "take": 1, "of": OF, "token": 1, "since": 0, "came": 0, "until": later * 1000, "label": null, "host": "h", "pid": 1,
    });
    let with = |member: &str, value: Value| -> Map<String, Value> {
        let mut members = members.clone();
        members[member] = value;
        let claim = String::from_utf8(uuid()).unwrap();
        [(claim, members)].into_iter().collect()
    };
    let without = |member: &str| {
        let mut shares = with(member, json!(null));
        for share in shares.values_mut() {
            share.as_object_mut().unwrap().remove(member);
        }
        shares
    };
    let sharing = |shares| Row { shares: Some(Shares::Of(shares)), ..free.clone() };
    let waiting = |queue| Row { queue: Some(json!(queue).to_string().into_bytes()), ..free.clone() };
    let rows = [
        Row { claim: Some(b"{}".to_vec()), ..free.clone() },
        sharing(with("since", json!(i64::MIN))),
        sharing(with("since", json!(i64::MAX))),
        sharing(with("until", json!(i64::MAX))),
        sharing(with("take", json!(-5))),
        sharing(with("take", json!("many"))),
        sharing(without("take")),
        sharing(without("of")),
        // Whoever holds it does so whatever a queue says of him.
        sharing(with("came", json!("7"))),
        Row { shares: Some(Shares::Of(with("of", json!(0)))), ..waiting(with("until", json!(0))) },
        waiting(with("until", json!(i64::MIN))),
        waiting(with("came", json!(i64::MIN))),
    ];
    for row in rows {
        ask_of(&Just(row), 1);
    }
}
