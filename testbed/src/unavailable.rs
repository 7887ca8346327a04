//! Why there is no server.

use crate::kind::Kind;
use std::error::Error;
use std::fmt;

/// No server of a kind can be had here. Its cases are listed as ignored, with this as the reason.
#[derive(Debug)]
pub struct Unavailable {
    kind: Kind,
    reasons: Vec<String>,
}

impl Unavailable {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, reasons: Vec::new() }
    }

    pub(crate) fn because(mut self, reason: impl Into<String>) -> Self {
        self.reasons.push(reason.into());
        self
    }

    /// Why each way that was tried led nowhere.
    #[must_use]
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} server: {}", self.kind, self.reasons.join("; "))
    }
}

impl Error for Unavailable {}
