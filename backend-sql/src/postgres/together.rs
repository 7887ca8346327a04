//! Lease rows: requests that one statement carries out together.

use super::{
    server::{Postgres, arguments},
    statements::Statements,
    values::{Value, Values},
};
use crate::lane::{Batch, Member};
use serde_json::{Map, Value as Json};
use sqlx::{Row, postgres::PgRow};
use std::sync::Arc;
use tenure_core::Name;

/// The kinds of requests that share a statement: exclusive locks, when there is no queue.
pub(super) struct Together {
    acquire: Arc<Batch<Postgres>>,
    release: Arc<Batch<Postgres>>,
}

impl Together {
    pub(super) fn new(statements: &Statements) -> Self {
        let (acquire, release) = (statements.acquire_many.clone(), statements.release_many.clone());
        Self {
            acquire: Arc::new(Batch { statement: acquire, arguments: to_acquire, answers }),
            release: Arc::new(Batch { statement: release, arguments: to_release, answers }),
        }
    }

    pub(super) fn acquiring(&self, name: &Name) -> Member<Postgres> {
        Member { batch: Arc::clone(&self.acquire), row: name.to_string() }
    }

    pub(super) fn releasing(&self, name: &Name) -> Member<Postgres> {
        Member { batch: Arc::clone(&self.release), row: name.to_string() }
    }
}

/// From the parameters of [`Statements::acquire`].
fn to_acquire(each: &[&Values]) -> Values {
    let names = ["", "name", "claim", "lease", "label", "host", "pid", "", "more"];
    arguments![first(each, 0), objects(each, &names)]
}

/// From the parameters of [`Statements::release`].
fn to_release(each: &[&Values]) -> Values {
    arguments![first(each, 0), objects(each, &["", "name", "claim"]), first(each, 3)]
}

/// A parameter that all have in common.
fn first(each: &[&Values], at: usize) -> Value {
    each.first().and_then(|values| values.get(at)).cloned().unwrap_or(Value::Text(None))
}

/// A JSON array of objects. The parameters without a name are left out.
fn objects(each: &[&Values], names: &[&str]) -> String {
    let object = |values: &&Values| -> Json {
        let named = names.iter().zip(values.iter()).filter(|(name, _)| !name.is_empty());
        named.map(|(name, value)| ((*name).to_owned(), json(value))).collect::<Map<_, _>>().into()
    };
    each.iter().map(object).collect::<Json>().to_string()
}

fn json(value: &Value) -> Json {
    match value {
        Value::Text(text) => text.clone().into(),
        Value::Number(number) => (*number).into(),
    }
}

/// A row without a name that can be read is left to the statement for one.
fn answers(rows: Vec<PgRow>) -> Vec<(String, Vec<PgRow>)> {
    rows.into_iter().filter_map(|row| Some((row.try_get("name").ok()?, vec![row]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_becomes_an_object() {
        let one = arguments!["p", "a", "1", 30_000, None::<&str>, "h", 7, None::<&str>, 0];
        let other = arguments!["p", "b\"", "2", 5_000, "label", "h", 7, None::<&str>, 3];
        let [prefix, objects]: [Value; 2] = to_acquire(&[&one, &other]).try_into().unwrap();
        assert!(matches!(prefix, Value::Text(Some(prefix)) if prefix == "p"));
        let Value::Text(Some(objects)) = objects else { panic!("no text") };
        let expected = serde_json::json!([
            { "name": "a", "claim": "1", "lease": 30_000, "label": null, "host": "h", "pid": 7, "more": 0 },
            { "name": "b\"", "claim": "2", "lease": 5_000, "label": "label", "host": "h", "pid": 7, "more": 3 },
        ]);
        assert_eq!(objects.parse::<Json>().unwrap(), expected);
    }
}
