//! Fencing tokens.

#[cfg(feature = "sqlx")]
mod sqlx;

use serde::{Deserialize, Serialize};
use std::{fmt, num::NonZeroU64};

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
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Token(NonZeroU64);

impl Token {
    /// The smallest token: 1.
    pub const MIN: Self = Self(NonZeroU64::MIN);
    /// The greatest possible token: 2^63 − 1.
    pub const MAX: u64 = i64::MAX as u64;

    /// Makes a token from a number between 1 and [`MAX`](Self::MAX); `None` for any other.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number > Self::MAX {
            return None;
        }
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
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
        u64::try_from(number).ok().and_then(Self::new).ok_or(InvalidToken(i128::from(number)))
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
        Self::new(number).ok_or(InvalidToken(i128::from(number)))
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.get()
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

/// A number that no fencing token can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a fencing token: tokens are 1 to 2^63 - 1")]
pub struct InvalidToken(i128);
