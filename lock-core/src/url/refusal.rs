//! Why a URL names no store.

use super::Scheme;
use crate::Error;

/// What is wrong with a URL, and what would be valid: two clauses of one sentence. Neither may repeat what could be a part
/// of a password.
#[derive(Clone, Debug)]
#[must_use]
pub struct Refusal {
    problem: String,
    valid: String,
}

impl Refusal {
    /// `problem` says what is wrong with the URL ("it has a fragment"), `valid` what to write ("write %23 where # is
    /// meant").
    pub fn new(problem: impl Into<String>, valid: impl Into<String>) -> Self {
        Self { problem: problem.into(), valid: valid.into() }
    }

    /// The error for this URL, of which only as much is repeated as is safe: no user, no password, no parameters.
    ///
    /// `scheme` is the URL's, if it is known. A place is repeated only where it is a path.
    #[must_use]
    pub fn of(self, url: &str, scheme: Option<&Scheme>) -> Error {
        Error::InvalidUrl { url: super::scheme::shown(url, scheme), problem: self.problem, valid: self.valid }
    }
}
