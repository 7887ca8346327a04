//! Fencing tokens.

#[cfg(feature = "sqlx")]
mod sqlx;

use super::excerpt::excerpt;
use serde::{Deserialize, Serialize};
use std::{fmt, num::NonZeroU64, str::FromStr};

/// A number that rises with every grant of a name, so that a resource can refuse a stale holder.
///
/// It is strictly greater than the tokens of all earlier grants of that name, across release, expiry, forced release,
/// client crashes and server restarts. It is between 1 and 2^63 − 1, so it fits in a signed 64-bit column.
///
/// A token protects only what checks it: let the resource remember the greatest token that it has seen, and refuse
/// smaller ones. See Martin Kleppmann, [How to do distributed
/// locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
///
/// With the feature `sqlx` it is bound to a query and read from a column like an `i64`:
/// `sqlx::query("UPDATE …").bind(guard.token())`. The stores in SQL databases include that feature.
///
/// # Examples
///
/// ```
/// use tenure_core::Token;
///
/// let (earlier, later) = (Token::new(7).unwrap(), Token::new(9).unwrap());
/// assert!(earlier < later);
/// assert_eq!(later.get(), 9);
/// assert!(Token::new(0).is_none() && Token::new(1 << 63).is_none());
/// // As a database's `bigint` has it.
/// assert_eq!(Token::try_from(i64::from(later)), Ok(later));
/// assert!(Token::try_from(0_u64).is_err());
/// // As `tenure run` puts it into `TENURE_TOKEN`.
/// assert_eq!("9".parse(), Ok(later));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Token(NonZeroU64);

impl Token {
    /// The smallest token: 1.
    pub const MIN: Self = Self(NonZeroU64::MIN);
    /// The greatest possible token: 2^63 − 1.
    pub const MAX: Self = Self(NonZeroU64::new(i64::MAX as u64).unwrap());

    /// Makes a token from a number between 1 and [`MAX`](Self::MAX); `None` for any other.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(token) if number <= Self::MAX.get() => Some(Self(token)),
            _ => None,
        }
    }

    /// Returns the token as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the token as a signed number, as databases store it.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0.get().cast_signed()
    }
}

impl TryFrom<i64> for Token {
    type Error = InvalidToken;

    fn try_from(number: i64) -> Result<Self, InvalidToken> {
        u64::try_from(number).ok().and_then(Self::new).ok_or_else(|| InvalidToken(number.to_string()))
    }
}

impl From<Token> for i64 {
    fn from(token: Token) -> Self {
        token.as_i64()
    }
}

impl TryFrom<u64> for Token {
    type Error = InvalidToken;

    fn try_from(number: u64) -> Result<Self, InvalidToken> {
        Self::new(number).ok_or_else(|| InvalidToken(number.to_string()))
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.get()
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let wrong = || InvalidToken(excerpt(text));
        text.parse().ok().and_then(Self::new).ok_or_else(wrong)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A number or text that is no fencing token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a fencing token: tokens are 1 to 2^63 - 1")]
pub struct InvalidToken(String);
