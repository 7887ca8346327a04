//! Rows that another program wrote, or damaged: drawn at random, or kept because they were once mistaken for something
//! else. What may be made of each is said by a model that knows no SQL. Every test program of such a table includes this.

use crate::claims::{claim, name};
use proptest::{option, prelude::*};
use serde_json::{Value, json};
use std::{
    num::NonZeroU32,
    time::{Duration, SystemTime},
};
use tenure_core::{Attempt, Backend, Claim, Grant, Holder, Mode, Moment, Renewal, StoreError, Token};

/// So many seconds are more than a request takes: what ends later than that from now is not over.
const FAR: i64 = 60;
/// How many permits there are, as we count on it.
const OF: i64 = 3;
/// The claims that rows know.
const KNOWN: [&str; 2] = ["0b0e5c1e-9f0f-4d0c-8f0e-1a2b3c4d5e6f", "0b0e5c1e-9f0f-4d0c-8f0e-1a2b3c4d5e70"];
/// How long a waiter waits for such a row.
const MOMENT: Duration = Duration::from_millis(10);

/// A row, as no statement of ours would write it. Texts are bytes, because not every database looks whether they are UTF-8.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) version: i64,
    pub(crate) token: i64,
    pub(crate) claim: Option<Vec<u8>>,
    pub(crate) mode: Option<Vec<u8>>,
    pub(crate) since: i64,
    pub(crate) expires_at: i64,
    pub(crate) awaited_until: i64,
    pub(crate) awaited_by: Option<Vec<u8>>,
    pub(crate) label: Option<Vec<u8>>,
    pub(crate) host: Vec<u8>,
    pub(crate) pid: i64,
    pub(crate) record: Option<Kept>,
}

/// The record column's content.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Text(Vec<u8>),
    Of(Value),
}

impl Kept {
    pub(crate) fn text(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Of(record) => record.to_string().into_bytes(),
        }
    }
}

fn now() -> i64 {
    i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap()
}

/// About now, in this unit of a second.
fn about_now(unit: i64) -> impl Strategy<Value = i64> {
    let now = now();
    (-20 * FAR..40 * FAR).prop_map(move |off| (now + off) * unit)
}

/// Whole numbers: any, those at the ends, and those about now in this unit of a second.
pub(crate) fn number(unit: i64) -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        prop::sample::select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]),
        about_now(unit),
        // Past the year 9999.
        Just(253_402_300_800 * unit),
    ]
}

/// Texts for which every column has room, in UTF-8.
pub(crate) fn texts() -> BoxedStrategy<Vec<u8>> {
    let any_text = any::<String>().prop_map(|text| text.chars().take(9).collect::<String>());
    let odd = [KNOWN[0], "", "{}", "{", "[]", "null", "{\"a\":1}", "{\"a\":null}", "\u{1b}[2J\n"];
    prop_oneof![any_text, prop::sample::select(odd.map(str::to_owned).to_vec())]
        .prop_map(String::into_bytes)
        .boxed()
}

fn odd() -> impl Strategy<Value = Value> {
    let odd =
        [json!(null), json!("7"), json!("x"), json!(1e300), json!(0.5), json!([1]), json!({}), json!(true)];
    prop_oneof![1 => number(1).prop_map(Value::from), 2 => prop::sample::select(odd.to_vec())]
}

/// A record's member, nearly always sound: otherwise no record would ever be read to the end.
fn member<V: Into<Value> + 'static>(sound: impl Strategy<Value = V> + 'static) -> BoxedStrategy<Value> {
    prop_oneof![40 => sound.prop_map(Into::<Value>::into), 1 => odd()].boxed()
}

fn claimed() -> BoxedStrategy<Value> {
    member(prop::sample::select(KNOWN.to_vec()))
}

fn instant() -> BoxedStrategy<Value> {
    let far = prop::sample::select(vec![0, u64::MAX]).prop_map(Value::from);
    prop_oneof![20 => member(about_now(1_000_000)), 1 => far].boxed()
}

fn mode() -> BoxedStrategy<Value> {
    let of = prop_oneof![4 => Just(json!(OF)), 1 => member(-1..5_i64)];
    let permit = (prop_oneof![4 => (1..OF).prop_map(Value::from), 1 => member(-1..5_i64)], of);
    prop_oneof![
        6 => prop::sample::select(vec![json!("Exclusive"), json!("Shared")]),
        6 => permit.prop_map(|(take, of)| json!({ "Permit": { "take": take, "of": of } })),
        1 => prop::sample::select(vec![json!("Permit"), json!({ "Permit": { "of": OF } }), json!(null), json!(5), json!({})]),
    ]
    .boxed()
}

/// Nearly always such an object. Now and then a member is missing, or there is one too many.
fn mostly(object: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Value> {
    let hurt = (object, 0..150_usize).prop_map(|(mut object, hurt)| {
        let members = object.as_object_mut().unwrap();
        if hurt == 149 {
            members.insert("lent".to_owned(), json!(1));
        } else if let Some(missing) = members.keys().nth(hurt).cloned() {
            members.remove(&missing);
        }
        object
    });
    prop_oneof![40 => hurt, 1 => odd()].boxed()
}

fn record() -> BoxedStrategy<Value> {
    let (token, pid) = (member(1..i64::MAX), member(any::<u32>()));
    let held = (claimed(), mode(), token, instant(), instant(), pid).prop_map(|(claim, mode, token, since, until, pid)| {
        let holder = json!({ "label": null, "host": "h", "pid": pid });
        json!({ "claim": claim, "mode": mode, "token": token, "since": since, "until": until, "holder": holder })
    });
    let pid = member(any::<u32>());
    let place =
        (claimed(), mode(), instant(), instant(), pid).prop_map(|(claim, mode, since, until, pid)| {
            let holder = json!({ "label": null, "host": "h", "pid": pid });
            json!({ "claim": claim, "mode": mode, "since": since, "until": until, "holder": holder })
        });
    let mark = (claimed(), member(any::<bool>()), instant())
        .prop_map(|(claim, alone, until)| json!({ "claim": claim, "alone": alone, "until": until }));
    let held = prop::collection::vec(mostly(held), 0..3);
    let queue = prop::collection::vec(mostly(place), 0..3);
    let forced = prop::collection::vec((claimed(), instant()), 0..2);
    let members = (held, queue, option::of(mostly(mark)), forced);
    mostly(members.prop_map(
        |(held, queue, mark, forced)| json!({ "held": held, "queue": queue, "mark": mark, "forced": forced }),
    ))
}

/// Rows with such texts. Most records have the token of their row.
pub(crate) fn rows(text: &BoxedStrategy<Vec<u8>>) -> impl Strategy<Value = Row> + use<> {
    let text = || text.clone();
    let uuid = || prop::sample::select(KNOWN.map(|claim| claim.as_bytes().to_vec()).to_vec());
    let claim = || option::weighted(0.7, prop_oneof![5 => uuid(), 1 => text()]);
    let mode =
        option::of(prop_oneof![5 => mode().prop_map(|mode| mode.to_string().into_bytes()), 1 => text()]);
    let record = option::of(prop_oneof![6 => record().prop_map(Kept::Of), 1 => text().prop_map(Kept::Text)]);
    let token = prop_oneof![1 => number(1_000_000), 5 => 1..i64::MAX];
    let pid = prop_oneof![1 => number(1), 5 => any::<u32>().prop_map(i64::from)];
    let numbers = (number(1), token, pid, prop::bool::weighted(0.9));
    let times = (number(1000), number(1000), number(1000));
    (numbers, times, (claim(), mode, claim()), (option::of(text()), text(), record)).prop_map(
        |((version, token, pid, agrees), times, (claim, mode, awaited_by), (label, host, mut record))| {
            let (since, expires_at, awaited_until) = times;
            if let (Some(Kept::Of(Value::Object(record))), true) = (&mut record, agrees) {
                record.insert("token".to_owned(), token.into());
            }
            Row {
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
            }
        },
    )
}

/// Rows that random draws rarely find.
pub(crate) fn rows_that_were_wrong_once() -> Vec<Row> {
    let later = now() + 20 * FAR;
    let free = Row {
        version: 1,
        token: 1,
        claim: None,
        mode: None,
        since: 0,
        expires_at: later * 1000,
        awaited_until: 0,
        awaited_by: None,
        label: None,
        host: b"h".to_vec(),
        pid: 1,
        record: None,
    };
    let alone = Row { claim: Some(KNOWN[0].as_bytes().to_vec()), ..free.clone() };
    let kept = |record: Value| Row {
        token: record["token"].as_i64().unwrap_or(1),
        record: Some(Kept::Of(record)),
        ..free.clone()
    };

    let permits = |take, of| json!({ "Permit": { "take": take, "of": of } });
    let until = later * 1_000_000;
    let holder = json!({ "label": null, "host": "h", "pid": 1 });
    let held = json!({
        "claim": KNOWN[0], "mode": permits(1, OF), "token": 1, "since": 0, "until": until, "holder": holder,
    });
    let place = json!({
        "claim": KNOWN[0], "mode": permits(1, OF), "since": 0, "until": until, "holder": holder,
    });
    let mark = json!({ "claim": KNOWN[0], "alone": true, "until": until });
    let with = |one: &Value, member: &str, value: Value| {
        let mut one = one.clone();
        match value {
            Value::Null => drop(one.as_object_mut().unwrap().remove(member)),
            value => one[member] = value,
        }
        one
    };
    let holding =
        |member: &str, value: Value| kept(json!({ "token": 1, "held": [with(&held, member, value)] }));
    let waiting =
        |member: &str, value: Value| kept(json!({ "token": 1, "queue": [with(&place, member, value)] }));
    vec![
        alone.clone(),
        Row { claim: Some(b"{}".to_vec()), ..free.clone() },
        Row { token: 0, ..alone.clone() },
        Row { token: -1, ..alone.clone() },
        Row { mode: Some(b"x".to_vec()), ..alone.clone() },
        Row { pid: -1, ..alone.clone() },
        Row { expires_at: i64::MAX, ..alone.clone() },
        Row { version: i64::MAX, ..free.clone() },
        Row { version: i64::MAX, ..alone.clone() },
        // Records without holders, in rows that have a token.
        kept(json!({})),
        kept(json!([])),
        Row { record: Some(Kept::Of(json!({ "x": 1 }))), ..alone },
        kept(json!({ "token": i64::MAX })),
        holding("since", json!(i64::MIN)),
        holding("since", json!(u64::MAX)),
        holding("until", json!(until)),
        holding("until", json!(u64::MAX)),
        holding("mode", permits(-5, OF)),
        holding("mode", permits(0, OF)),
        holding("mode", json!({ "Permit": { "take": "many", "of": OF } })),
        holding("mode", json!({ "Permit": { "of": OF } })),
        holding("mode", json!({ "Permit": { "take": 1 } })),
        holding("mode", permits(7, OF)),
        holding("mode", Value::Null),
        holding("token", json!(0)),
        holding("alone", json!(true)),
        // A claim that both holds and waits counts as a holder.
        kept(json!({ "token": 1, "held": [with(&held, "mode", permits(OF, OF))], "queue": [place] })),
        waiting("until", json!(i64::MIN)),
        waiting("until", json!(u64::MAX)),
        waiting("since", json!(u64::MAX)),
        waiting("since", Value::Null),
        waiting("holder", Value::Null),
        kept(json!({ "token": 1, "mark": with(&mark, "until", json!(u64::MAX)) })),
    ]
}

impl Row {
    /// How those hold it who still do when everything was asked, as far as anything can be made of them.
    fn live(&self) -> Vec<Value> {
        let later = now() + FAR;
        let instant = u64::try_from(later * 1_000_000).unwrap();
        let lives = |one: &&Value| one["until"].as_u64().is_some_and(|until| until >= instant);
        match &self.record {
            Some(Kept::Of(record)) => {
                let held = record["held"].as_array().into_iter().flatten();
                held.filter(lives).map(|one| one["mode"].clone()).collect()
            }
            None if self.claim.is_some() && self.expires_at >= later * 1000 => match &self.mode {
                None => vec![json!("Exclusive")],
                Some(mode) => vec![serde_json::from_slice(mode).unwrap_or_default()],
            },
            Some(Kept::Text(_)) | None => Vec::new(),
        }
    }

    /// Whether it may be granted in this mode.
    pub(crate) fn may_be_had(&self, mode: Mode) -> bool {
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

/// No client is told that the name is free while it is held.
fn told(row: &Row, asked: &str, holders: &Result<Vec<Holder>, StoreError>) -> Result<(), TestCaseError> {
    let held = !row.live().is_empty();
    let free = holders.as_ref().is_ok_and(Vec::is_empty);
    prop_assert!(!(held && free), "{asked}: nobody holds it: {row:?}");
    Ok(())
}

/// A grant that the row may have, and one that the store never gave.
fn grants(asked: &Claim) -> [Grant; 2] {
    let theirs = Claim { id: KNOWN[0].parse().unwrap(), ..asked.clone() };
    [&theirs, asked].map(|claim| Grant::leased(claim, Token::MIN, Moment::now()))
}

/// Makes every request about the row of the lock "a", which `put` puts into the table. No request panics
/// or is granted beside a conflicting hold, and `beside`, another lock, keeps its lease.
pub(crate) async fn ask(
    backend: &dyn Backend,
    beside: &Grant,
    row: &Row,
    mut put: impl AsyncFnMut(),
) -> Result<(), TestCaseError> {
    let a = name("a");
    put().await;
    told(row, "holders", &backend.holders(&a).await)?;
    told(row, "list", &backend.list("a").await)?;
    let number = |n: i64| NonZeroU32::new(u32::try_from(n).unwrap()).unwrap();
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { take: number(1), of: number(OF) }] {
        put().await;
        let asked = Claim { mode, ..claim("a") };
        let attempt = backend.try_acquire(&asked).await;
        let granted = matches!(attempt, Ok(Attempt::Granted(_)));
        prop_assert!(!granted || row.may_be_had(mode), "{mode:?}: {attempt:?}: {row:?}");
        // Refused or carried out, as the row has it.
        for grant in grants(&asked) {
            put().await;
            let _ = backend.convert(&grant, Mode::Shared).await;
            let _ = backend.release(&grant).await;
            let _ = backend.withdraw(&Claim { id: grant.claim, ..asked.clone() }).await;
        }
        // The last claim held nothing, and its requests end no other claim's hold.
        told(row, "afterwards", &backend.holders(&a).await)?;
    }
    put().await;
    let [theirs, never] = grants(&claim("a"));
    let renewed = backend.renew(&[theirs, never, beside.clone()]).await;
    let kept = renewed.as_ref().is_ok_and(|renewed| renewed[2] == Renewal::Renewed);
    prop_assert!(kept, "{renewed:?}: {row:?}");
    put().await;
    let waits = Claim { waits: true, ..claim("a") };
    let waited = tokio::time::timeout(MOMENT, backend.acquire(&waits)).await;
    let granted = matches!(waited, Ok(Ok(_)));
    prop_assert!(!granted || row.may_be_had(waits.mode), "{waited:?}: {row:?}");
    let _ = backend.withdraw(&waits).await;
    told(row, "after a wait", &backend.holders(&a).await)?;
    put().await;
    told(row, "force", &backend.force_release(&a).await)
}
