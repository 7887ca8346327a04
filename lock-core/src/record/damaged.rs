//! Texts that are almost a record, because another program wrote them. They never cause a panic, and never make a name
//! look free that is held.

use super::{
    tests::{CLIENTS, MARK, World, acquire, claim, modes, name, start, steps},
    *,
};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

/// The damage to one place in a text.
#[derive(Clone, Debug)]
enum Damage {
    /// A field gets another name.
    Rename,
    /// The value there is replaced by another.
    Replace(Value),
}

fn damages() -> impl Strategy<Value = Damage> {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(u64::MAX),
        json!(u64::MAX - 1),
        json!(i64::MAX),
        json!(1e300),
        json!(""),
        json!("Exclusive"),
        json!("Shared"),
        json!({"Permit": {"take": u32::MAX, "of": u32::MAX}}),
        json!({"Permit": {"take": 5, "of": 1}}),
        json!([]),
        json!([[]]),
        json!({}),
    ];
    prop_oneof![Just(Damage::Rename), proptest::sample::select(values.to_vec()).prop_map(Damage::Replace)]
}

/// The pointers to everything in `value`, which is itself at `here`.
fn pointers(value: &Value, here: &str) -> Vec<String> {
    let within: Vec<(String, &Value)> = match value {
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, field)| (key.clone(), field)).collect(),
        _ => Vec::new(),
    };
    let within = within.into_iter().flat_map(|(key, item)| {
        let there = format!("{here}/{key}");
        let deeper = pointers(item, &there);
        [vec![there], deeper].concat()
    });
    within.collect()
}

fn damage(text: &mut Value, place: Index, how: &Damage) {
    let pointers = pointers(text, "");
    let there = place.get(&pointers);
    match how {
        Damage::Replace(value) => {
            if let Some(place) = text.pointer_mut(there) {
                *place = value.clone();
            }
        }
        Damage::Rename => {
            let Some((parent, key)) = there.rsplit_once('/') else { return };
            if let Some(Value::Object(fields)) = text.pointer_mut(parent)
                && let Some(field) = fields.remove(key)
            {
                fields.insert(format!("{key}_"), field);
            }
        }
    }
}

/// Makes every request. The answers no longer matter.
fn ask_everything(record: &Record, world: &World) {
    let now = world.now;
    for claim in &world.claims {
        let mut record = record.clone();
        let _ = (record.is_idle(now), record.next(now));
        let _ = (record.holders(&name(), now), record.waiting(&name(), now));
        record.leave_mark(claim, now, MARK);
        record.join_queue(claim, now);
        let granted = acquire(&mut record, claim, now);
        for grant in granted.iter().chain(world.grants.get(&claim.id)) {
            for to in [Mode::Shared, Mode::Exclusive] {
                record.convert(grant, to, now);
            }
            record.renew(grant, now);
            record.clone().release(grant, now + Duration::from_secs(2));
        }
        record.force_release(&name(), now);
        record.withdraw(claim.id);
    }
}

proptest! {
    /// For any value in place of a number, a claim or a mode.
    #[test]
    fn damaged_record_never_panics(
        modes in proptest::collection::vec(modes(), CLIENTS),
        history in steps(60),
        hurts in proptest::collection::vec((any::<Index>(), damages()), 1..4),
    ) {
        let mut world = World::new(&modes);
        for step in history {
            world.take(step);
        }
        let mut text = serde_json::to_value(&world.record).unwrap();
        for (place, how) in &hurts {
            damage(&mut text, *place, how);
        }
        if let Ok(record) = serde_json::from_value::<Record>(text) {
            ask_everything(&record, &world);
        }
    }

    /// A field with another name is an error and does not count as missing, so no claim is granted beside a holder.
    #[test]
    fn unknown_field_is_an_error(
        mode in modes(),
        history in steps(60),
        place in any::<Index>(),
    ) {
        let mut world = World::new(&[mode; CLIENTS]);
        for step in history {
            world.take(step);
        }
        let mut text = serde_json::to_value(&world.record).unwrap();
        damage(&mut text, place, &Damage::Rename);
        if let Ok(mut record) = serde_json::from_value::<Record>(text) {
            let mut sound = world.record.clone();
            let newcomer = claim(Mode::Exclusive, 1000);
            let [told, truth] = [&mut record, &mut sound].map(|record| {
                record.acquire(&newcomer, world.now, Moment::now()).map(|answer| matches!(answer, Attempt::Granted(_))).ok()
            });
            prop_assert_eq!(told, truth);
        }
    }
}

#[test]
fn record_of_another_version_is_an_error() {
    let mut record = Record::default();
    let _ = record.acquire(&claim(Mode::Exclusive, 1000), start(), Moment::now());
    let mut text = serde_json::to_value(&record).unwrap();
    text["lent"] = json!([]);
    let error = serde_json::from_value::<Record>(text).unwrap_err().to_string();
    assert!(error.contains("lent"), "{error}");
}
