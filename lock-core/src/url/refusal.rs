//! Why a URL is invalid.

use super::Scheme;
use crate::contract::Error;

/// The mistake in a URL, and how to correct it. Neither text may repeat anything that could be part of a password.
#[derive(Clone, Debug)]
#[must_use]
pub struct Refusal {
    problem: String,
    valid: String,
}

impl Refusal {
    /// Makes a refusal: `problem` names the mistake ("missing host"), `valid` what to write ("write
    /// files:PATH").
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
