//! What the scripts answer, in types.

use crate::{mode, record::Seen, redlock::Vote, sentinel::Known};
use redis::Value;
use std::{collections::HashMap, num::NonZeroU32, time::Duration};
use tenure_core::{Conversion, Holder, LatchState, LossCause, Mode, Name, Renewal, StoreError, Token};

/// The answer to an attempt.
pub(crate) enum Attempt {
    Granted(Token),
    /// Another holds the lock, for so long yet, and the server's clock shows this, where it tells.
    Busy {
        expires_in: Option<Duration>,
        at: Option<Duration>,
    },
    /// Others hold the lock in this way, which is not the claim's.
    Otherwise(Mode),
}

pub(crate) fn attempt(value: &Value) -> Result<Attempt, StoreError> {
    match value {
        Value::Int(left) => Ok(Attempt::Busy { expires_in: millis(*left), at: None }),
        Value::Array(values) => match &values[..] {
            [Value::Int(left), seconds, micros] => {
                Ok(Attempt::Busy { expires_in: millis(*left), at: Some(clock(seconds, micros)?) })
            }
            [how] => {
                let mode = text(how).and_then(|how| mode::read(how, NonZeroU32::MIN));
                mode.map(Attempt::Otherwise).ok_or_else(|| unexpected(value))
            }
            _ => Err(unexpected(value)),
        },
        Value::Nil => Err(StoreError::failed("the claim was withdrawn while its request was on its way")),
        value => {
            let number = text(value).and_then(|digits| digits.parse().ok());
            number.and_then(Token::new).map(Attempt::Granted).ok_or_else(|| unexpected(value))
        }
    }
}

/// The tokens of several locks; `None` when another holds one of them.
pub(crate) fn tokens(value: &Value) -> Result<Option<Vec<Token>>, StoreError> {
    match value {
        Value::Int(0) => Ok(None),
        Value::Array(values) => {
            let token = |value| match attempt(value)? {
                Attempt::Granted(token) => Ok(token),
                _ => Err(unexpected(value)),
            };
            values.iter().map(token).collect::<Result<_, _>>().map(Some)
        }
        value => Err(attempt(value).err().unwrap_or_else(|| unexpected(value))),
    }
}

/// What a node of several says to an attempt.
pub(crate) fn vote(value: &Value) -> Result<Vote, StoreError> {
    let raised = text(value).is_some_and(|digits| digits.starts_with('+'));
    Ok(match attempt(value)? {
        Attempt::Granted(token) => Vote::Yes { token, raised },
        Attempt::Busy { expires_in, .. } => Vote::No { expires_in },
        Attempt::Otherwise(_) => return Err(unexpected(value)),
    })
}

/// How far a latch has come.
pub(crate) fn latch(value: &Value) -> Result<LatchState, StoreError> {
    let number = |n: &i64| u32::try_from(*n).map_err(|_| unexpected(value));
    match value {
        Value::Array(numbers) => match &numbers[..] {
            [Value::Int(of), Value::Int(counted)] => {
                Ok(LatchState { of: number(of)?, counted: number(counted)? })
            }
            _ => Err(unexpected(value)),
        },
        value => Err(unexpected(value)),
    }
}

/// Whether something was done.
pub(crate) fn yes(value: &Value) -> Result<bool, StoreError> {
    match value {
        Value::Int(answer @ (0 | 1)) => Ok(*answer == 1),
        value => Err(unexpected(value)),
    }
}

/// How many clients were told of a release; `None` when there was nothing to release.
pub(crate) fn told(value: &Value) -> Result<Option<u64>, StoreError> {
    match value {
        Value::Int(-1) => Ok(None),
        Value::Int(told) => Ok(u64::try_from(*told).ok()),
        value => Err(unexpected(value)),
    }
}

/// Why a claim does not hold a lock.
pub(crate) fn cause(value: &Value) -> Result<LossCause, StoreError> {
    match text(value) {
        Some("expired") => Ok(LossCause::Expired),
        Some("taken") => Ok(LossCause::TakenOver),
        Some("forced") => Ok(LossCause::Forced),
        Some("forgotten") => Ok(LossCause::Forgotten),
        _ => Err(unexpected(value)),
    }
}

pub(crate) fn conversion(value: &Value) -> Result<Conversion, StoreError> {
    match value {
        Value::Int(1) => Ok(Conversion::Converted),
        Value::Int(0) => Ok(Conversion::Refused),
        value => cause(value).map(Conversion::NotHeld),
    }
}

pub(crate) fn renewals(value: &Value) -> Result<Vec<Renewal>, StoreError> {
    let answer = |value: &Value| match value {
        Value::Int(1) => Ok(Renewal::Renewed),
        value => cause(value).map(Renewal::Lost),
    };
    match value {
        Value::Array(answers) => answers.iter().map(answer).collect(),
        value => Err(unexpected(value)),
    }
}

/// Who holds these names. Those that nobody holds are left out.
pub(crate) fn holders(value: &Value, names: &[Name]) -> Result<Vec<Holder>, StoreError> {
    let Value::Array(values) = value else { return Err(unexpected(value)) };
    let [seconds, micros, locks @ ..] = &values[..] else { return Err(unexpected(value)) };
    let now = clock(seconds, micros)?;
    let seen = |(name, lock): (&Name, &[Value])| {
        let [held, Value::Int(left), record] = lock else { return None };
        let (held, record) = (lossy(held)?, lossy(record));
        Some(Seen { now, value: &held, left: *left, record: record.as_deref() }.holders(name))
    };
    Ok(names.iter().zip(locks.chunks(3)).filter_map(seen).flatten().collect())
}

/// A page of keys, and where the next one begins; 0 after the last.
pub(crate) fn page(value: &Value) -> Result<(u64, Vec<String>), StoreError> {
    let Value::Array(parts) = value else { return Err(unexpected(value)) };
    let [cursor, Value::Array(keys)] = &parts[..] else { return Err(unexpected(value)) };
    let next = number(cursor).ok_or_else(|| unexpected(value))?;
    Ok((next, keys.iter().filter_map(text).map(str::to_owned).collect()))
}

/// What a sentinel answers when it is asked for a master; `None` when that is no sentinel's answer.
pub(crate) fn known(value: &Value) -> Option<Known> {
    let mut fields = HashMap::new();
    match value {
        Value::Array(words) => {
            fields
                .extend(words.chunks(2).filter_map(|pair| Some((text(pair.first()?)?, text(pair.get(1)?)?))));
        }
        Value::Map(pairs) => {
            fields.extend(pairs.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?))));
        }
        _ => return None,
    }
    let number = |name| fields.get(name)?.parse::<u64>().ok();
    Some(Known {
        host: (*fields.get("ip")?).to_owned(),
        port: u16::try_from(number("port")?).ok()?,
        epoch: number("config-epoch")?,
    })
}

/// Whether a server that was asked for its role is a master.
pub(crate) fn is_master(role: &Value) -> bool {
    matches!(role, Value::Array(parts) if parts.first().and_then(text) == Some("master"))
}

/// How many replicas have acknowledged.
pub(crate) fn acknowledged(value: &Value) -> Result<u32, StoreError> {
    match value {
        Value::Int(count) => u32::try_from(*count).map_err(|_| unexpected(value)),
        value => Err(unexpected(value)),
    }
}

/// What is left of a lease; `None` where it has no end.
fn millis(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// The server's clock.
fn clock(seconds: &Value, micros: &Value) -> Result<Duration, StoreError> {
    let read = |value| number(value).ok_or_else(|| unexpected(value));
    Ok(Duration::from_secs(read(seconds)?) + Duration::from_micros(read(micros)?))
}

fn text(value: &Value) -> Option<&str> {
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

fn unexpected(value: &Value) -> StoreError {
    let shown: String = format!("{value:?}").chars().take(80).collect();
    StoreError::failed(format!("the server answered what no script of tenure answers: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sentinel_knows() {
        let words = |words: &[&str]| {
            Value::Array(words.iter().map(|word| Value::BulkString(word.as_bytes().to_vec())).collect())
        };
        let said =
            words(&["name", "x", "ip", "10.0.0.1", "port", "6379", "flags", "master", "config-epoch", "7"]);
        assert_eq!(known(&said), Some(Known { host: "10.0.0.1".into(), port: 6379, epoch: 7 }));
        for nonsense in [
            words(&[]),
            words(&["ip"]),
            words(&["ip", "h", "port", "70000", "config-epoch", "7"]),
            Value::Nil,
        ] {
            assert_eq!(known(&nonsense), None);
        }
        assert!(
            is_master(&words(&["master", "0"])) && !is_master(&words(&["slave"])) && !is_master(&Value::Nil)
        );
    }
}
