//! The scripts' answers as types.

use super::{
    mode,
    record::{SeenLock, SeenWaiter},
};
use redis::Value;
use std::{num::NonZeroU32, time::Duration};
use tenure_core::{
    Conversion, Holder, LatchState, LossCause, Mode, Name, Renewal, StoreError, Token, Waiter,
};

/// The answer to an attempt.
pub(crate) enum AttemptReply {
    Granted(Token),
    /// Another holds the lock, for this much longer; with the server's clock, if it tells.
    Busy {
        expires_in: Option<Duration>,
        at: Option<Duration>,
    },
    /// Others hold the lock in this mode, which differs from the claim's.
    Otherwise(Mode),
}

pub(crate) fn attempt(value: &Value) -> Result<AttemptReply, StoreError> {
    match value {
        Value::Int(left) => Ok(AttemptReply::Busy { expires_in: millis(*left), at: None }),
        Value::Array(values) => match &values[..] {
            [Value::Int(left), seconds, micros] => {
                Ok(AttemptReply::Busy { expires_in: millis(*left), at: Some(clock(seconds, micros)?) })
            }
            [how] => {
                let mode = text(how).and_then(|how| mode::read(how, NonZeroU32::MIN));
                mode.map(AttemptReply::Otherwise).ok_or_else(|| unexpected(value))
            }
            _ => Err(unexpected(value)),
        },
        Value::Nil => Err(StoreError::claim_spent(
            "its claim was withdrawn, or released by force, before this request arrived",
        )),
        value => {
            let number = text(value).and_then(|digits| digits.parse().ok());
            number.and_then(Token::new).map(AttemptReply::Granted).ok_or_else(|| unexpected(value))
        }
    }
}

/// The rest of the holder's lease and the value of its key, if this answer refuses an attempt.
pub(crate) fn refused(value: &Value) -> Option<(Option<Duration>, &[u8])> {
    match value {
        Value::Array(values) => match &values[..] {
            [Value::Int(left), Value::BulkString(holder)] => Some((millis(*left), holder)),
            _ => None,
        },
        _ => None,
    }
}

/// The tokens of several locks; `None` if another holds one of them.
pub(crate) fn tokens(value: &Value) -> Result<Option<Vec<Token>>, StoreError> {
    match value {
        Value::Int(0) => Ok(None),
        Value::Array(values) => {
            let token = |value| match attempt(value)? {
                AttemptReply::Granted(token) => Ok(token),
                _ => Err(unexpected(value)),
            };
            values.iter().map(token).collect::<Result<_, _>>().map(Some)
        }
        value => Err(attempt(value).err().unwrap_or_else(|| unexpected(value))),
    }
}

/// The state of a latch.
pub(crate) fn latch(value: &Value) -> Result<LatchState, StoreError> {
    let number = |n: &i64| u32::try_from(*n).map_err(|_| unexpected(value));
    match value {
        Value::Array(numbers) => match &numbers[..] {
            [Value::Int(0), Value::Int(counted), _] => Ok(LatchState { of: 0, counted: number(counted)? }),
            [of, Value::Int(counted), _] => {
                let parties = text(of).and_then(|of| of.parse::<NonZeroU32>().ok());
                let of = parties.ok_or_else(|| StoreError::failed(NO_PARTIES))?.get();
                Ok(LatchState { of, counted: number(counted)? })
            }
            _ => Err(unexpected(value)),
        },
        value => Err(unexpected(value)),
    }
}

/// A latch's id, even if other fields are invalid; empty if there is none.
pub(crate) fn latch_id(value: &Value) -> Result<&str, StoreError> {
    let Value::Array(parts) = value else { return Err(unexpected(value)) };
    parts.get(2).and_then(text).ok_or_else(|| unexpected(value))
}

const NO_PARTIES: &str =
    "the latch has an invalid number of parties, so another program wrote it; remove the latch";

/// Whether something was changed.
pub(crate) fn yes(value: &Value) -> Result<bool, StoreError> {
    match value {
        Value::Int(answer @ (0 | 1)) => Ok(*answer == 1),
        value => Err(unexpected(value)),
    }
}

/// How many clients were told of a release; `None` if there was nothing to release.
pub(crate) fn told(value: &Value) -> Result<Option<u64>, StoreError> {
    match value {
        Value::Int(-1) => Ok(None),
        Value::Int(told) => u64::try_from(*told).map(Some).map_err(|_| unexpected(value)),
        value => Err(unexpected(value)),
    }
}

/// Why a claim does not hold a lock, which it held in this mode.
pub(crate) fn cause(value: &Value, mode: Mode) -> Result<LossCause, StoreError> {
    match text(value) {
        Some("taken") => Ok(LossCause::TakenOver),
        Some("passed") if mode == Mode::Exclusive => Ok(LossCause::TakenOver),
        Some("expired" | "passed") => Ok(LossCause::Expired),
        Some("forced") => Ok(LossCause::Forced),
        Some("forgotten") => Ok(LossCause::Forgotten),
        _ => Err(unexpected(value)),
    }
}

/// The outcome of converting a grant that had the mode `from`.
pub(crate) fn conversion(value: &Value, from: Mode) -> Result<Conversion, StoreError> {
    match value {
        Value::Int(1) => Ok(Conversion::Converted),
        Value::Int(0) => Ok(Conversion::Refused),
        value => cause(value, from).map(Conversion::Lost),
    }
}

/// The answer for each lease of grants in these modes, or its error if it could not be renewed.
pub(crate) fn renewals(
    value: &Value,
    modes: impl Iterator<Item = Mode>,
) -> Result<Vec<Result<Renewal, String>>, StoreError> {
    let answer = |(value, mode): (&Value, Mode)| match value {
        Value::Int(1) => Ok(Renewal::Renewed),
        Value::Array(failure) => {
            Err(failure.first().and_then(lossy).unwrap_or_else(|| unexpected(value).to_string()))
        }
        value => cause(value, mode).map(Renewal::Lost).map_err(|error| error.to_string()),
    };
    match value {
        Value::Array(answers) => Ok(answers.iter().zip(modes).map(answer).collect()),
        value => Err(unexpected(value)),
    }
}

/// Which of these names' keys hold something that is not a lock.
pub(crate) fn not_locks<'n>(value: &Value, names: &'n [Name]) -> Vec<&'n Name> {
    let Value::Array(values) = value else { return Vec::new() };
    let locks = values.get(2..).unwrap_or_default().chunks(3);
    let not_lock = |(name, lock): (&'n Name, &[Value])| (lock[0] == Value::Int(0)).then_some(name);
    names.iter().zip(locks).filter_map(not_lock).collect()
}

/// The holders of these names. Leaves out free names, and keys that hold something that is not a lock.
/// `damaged` is called with each name whose holders cannot be told, because another program wrote there.
pub(crate) fn holders(
    value: &Value,
    names: &[Name],
    mut damaged: impl FnMut(&Name),
) -> Result<Vec<Holder>, StoreError> {
    let Value::Array(values) = value else { return Err(unexpected(value)) };
    let [seconds, micros, locks @ ..] = &values[..] else { return Err(unexpected(value)) };
    let now = clock(seconds, micros)?;
    let seen = |(name, lock): (&Name, &[Value])| {
        let [held, Value::Int(left), record] = lock else { return None };
        let held = lossy(held)?;
        // A record of another type says nothing.
        let record = if *record == Value::Int(0) { Some(String::new()) } else { lossy(record) };
        let lock = SeenLock { now, value: &held, left: *left, record: record.as_deref() };
        if lock.is_damaged() {
            damaged(name);
        }
        Some(lock.holders(name))
    };
    Ok(names.iter().zip(locks.chunks(3)).filter_map(seen).flatten().collect())
}

/// This name's waiters in order, without those that have not shown up in time.
pub(crate) fn waiting(value: &Value, name: &Name) -> Result<Vec<Waiter>, StoreError> {
    let Value::Array(values) = value else { return Err(unexpected(value)) };
    let [seconds, micros, waiters @ ..] = &values[..] else { return Err(unexpected(value)) };
    let now = clock(seconds, micros)?;
    let seen = |waiter: &[Value]| {
        let [claim, came, known] = waiter else { return None };
        let (claim, known) = (lossy(claim)?, lossy(known)?);
        SeenWaiter { now, claim: &claim, came: instant(came), known: &known }.waiter(name)
    };
    Ok(waiters.chunks(3).filter_map(seen).collect())
}

/// A page of keys, and where the next one begins; 0 after the last.
pub(crate) fn page(value: &Value) -> Result<(u64, Vec<String>), StoreError> {
    let Value::Array(parts) = value else { return Err(unexpected(value)) };
    let [cursor, Value::Array(keys)] = &parts[..] else { return Err(unexpected(value)) };
    let next = number(cursor).ok_or_else(|| unexpected(value))?;
    Ok((next, keys.iter().filter_map(text).map(str::to_owned).collect()))
}

/// The rest of a lease; `None` if it does not end.
fn millis(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// The server's clock.
fn clock(seconds: &Value, micros: &Value) -> Result<Duration, StoreError> {
    let read = |value| number(value).ok_or_else(|| unexpected(value));
    let (whole, rest) = (Duration::from_secs(read(seconds)?), Duration::from_micros(read(micros)?));
    whole.checked_add(rest).ok_or_else(|| unexpected(seconds))
}

/// An instant of the server's clock that is the score of an entry, in microseconds.
fn instant(score: &Value) -> Option<Duration> {
    let micros: f64 = text(score)?.parse().ok()?;
    Duration::try_from_secs_f64(micros / 1e6).ok()
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Another program may have written anything.
fn lossy(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}

/// The error for an unexpected answer.
pub(crate) fn unexpected(value: &Value) -> StoreError {
    let shown: String = format!("{value:?}").chars().take(80).collect();
    StoreError::failed(format!("the server gave an unexpected answer to a script: {shown}"))
}

#[cfg(test)]
pub(crate) mod any {
    use proptest::prelude::*;
    use redis::Value;

    /// Anything a server may answer, and what it may answer to us more often than other things.
    pub(crate) fn value() -> impl Strategy<Value = Value> {
        let words =
            "(expired|taken|forced|forgotten|readers|permits of [0-9]{0,11}|ip|port|config-epoch|master)";
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            any::<i64>().prop_map(Value::Int),
            (-3_i64..3).prop_map(Value::Int),
            prop::collection::vec(any::<u8>(), 0..12).prop_map(Value::BulkString),
            "[+-]?[0-9]{0,22}".prop_map(|text| Value::BulkString(text.into_bytes())),
            words.prop_map(|text| Value::BulkString(text.into_bytes())),
            words.prop_map(Value::SimpleString),
            any::<f64>().prop_map(Value::Double),
        ];
        leaf.prop_recursive(3, 24, 8, |inner| {
            let pairs = prop::collection::vec((inner.clone(), inner.clone()), 0..4);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
                prop::collection::vec(inner, 0..8).prop_map(Value::Set),
                pairs.prop_map(Value::Map)
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{any::value as any_value, *};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// No answer is a panic, and none but the right one is a yes.
        #[test]
        fn no_answer_is_taken_for_another(value in any_value()) {
            let names = ["a", "b"].map(|name| Name::new(name).unwrap());
            if let Ok(AttemptReply::Granted(token)) = attempt(&value) {
                let digits = text(&value).unwrap();
                prop_assert_eq!(digits.parse::<u64>().ok(), Some(token.get()));
            }
            prop_assert_eq!(matches!(told(&value), Ok(None)), value == Value::Int(-1));
            prop_assert_eq!(matches!(conversion(&value, Mode::Shared), Ok(Conversion::Converted)), value == Value::Int(1));
            prop_assert_eq!(matches!(yes(&value), Ok(true)), value == Value::Int(1));
            if let Ok(Some(granted)) = tokens(&value) {
                prop_assert!(matches!(&value, Value::Array(all) if all.len() == granted.len()));
            }
            if let Ok(answers) = renewals(&value, std::iter::repeat(Mode::Shared)) {
                let Value::Array(all) = &value else { panic!("{value:?}") };
                prop_assert_eq!(all.len(), answers.len());
                for (said, answer) in all.iter().zip(answers) {
                    prop_assert_eq!(*said == Value::Int(1), answer == Ok(Renewal::Renewed));
                }
            }
            if let Ok(state) = latch(&value) && state.of == 0 {
                prop_assert!(matches!(&value, Value::Array(all) if all[0] == Value::Int(0)));
            }
            prop_assert!(latch_id(&value).is_err() || matches!(&value, Value::Array(all) if all.len() >= 3));
            if let Ok(holders) = holders(&value, &names, |_| ()) {
                prop_assert!(matches!(&value, Value::Array(all) if all.len() >= 2) && holders.len() <= 2 * 3);
            }
            if let Ok(waiters) = waiting(&value, &names[0]) {
                prop_assert!(matches!(&value, Value::Array(all) if all.len() >= 2 + 3 * waiters.len()));
            }
            let _ = (cause(&value, Mode::Shared), page(&value), not_locks(&value, &names));
        }

        /// A reply shows a holder, or that there is none, or that the key is no lock.
        #[test]
        fn a_lock_that_is_there_is_never_shown_as_free(
            clock in ("[0-9]{1,20}", "[0-9]{1,20}"),
            held in any_value(),
            left in any_value(),
            record in any_value(),
        ) {
            let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
            let names = [Name::new("a").unwrap()];
            let said = [bulk(&clock.0), bulk(&clock.1), held.clone(), left.clone(), record];
            let said = Value::Array(said.to_vec());
            let shown = holders(&said, &names, |_| ());
            if let (Ok(holders), Value::BulkString(value), Value::Int(_)) = (shown, &held, &left)
                && !value.contains(&b'\n')
            {
                prop_assert_eq!(holders.len(), 1);
            }
            prop_assert_eq!(not_locks(&said, &names).len(), usize::from(held == Value::Int(0)));
        }
    }

    #[test]
    fn names_that_another_program_damaged_are_told() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let records = [Value::Nil, bulk("nonsense"), Value::Int(0)];
        let locks = records.map(|record| [bulk("some claim"), Value::Int(1500), record]);
        let said = [vec![bulk("1700000010"), bulk("0")], locks.concat()].concat();
        let names = ["a", "b", "c"].map(|name| Name::new(name).unwrap());
        let mut damaged = Vec::new();
        let shown = holders(&Value::Array(said), &names, |name| damaged.push(name.to_string())).unwrap();
        assert_eq!((shown.len(), damaged), (3, vec!["b".to_owned(), "c".to_owned()]));
    }
}
