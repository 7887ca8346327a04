//! Why a URL names no store.

use super::Scheme;
use crate::Error;

/// What is wrong with a URL, and what would be valid: two clauses of one sentence. Neither may repeat anything that
/// could be part of a password.
#[derive(Clone, Debug)]
#[must_use]
pub struct Refusal {
    problem: String,
    valid: String,
}

impl Refusal {
    /// Makes a refusal: `problem` says what is wrong with the URL ("it has a fragment"), `valid` what to write ("write
    /// %23 where # is meant").
    pub fn new(problem: impl Into<String>, valid: impl Into<String>) -> Self {
        Self { problem: problem.into(), valid: valid.into() }
    }

    /// Makes the error for this URL. It repeats only what is safe: no user, no password, no parameters.
    ///
    /// `scheme` is the URL's, if known. The place is repeated only if it is a path.
    #[must_use]
    pub fn of(self, url: &str, scheme: Option<&Scheme>) -> Error {
        Error::InvalidUrl { url: super::scheme::shown(url, scheme), problem: self.problem, valid: self.valid }
    }
}
