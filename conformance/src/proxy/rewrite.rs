//! Rewriting what a connection says first.

use std::fmt;
use std::sync::Arc;

/// Rewrites the first bytes of a connection's requests, of which [`Proxy::start_link`](super::Proxy::start_link) passes on
/// what it returns. What follows passes as it is.
#[derive(Clone)]
pub struct Rewrite(Arc<Rule>);

type Rule = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

impl Rewrite {
    /// A rule that is given all bytes so far. It returns what to send in their place, or `None` while it has not seen
    /// enough.
    pub fn new(rewrite: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(rewrite))
    }
}

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rewrite")
    }
}

/// The beginning of a connection, until it has been rewritten.
pub(super) struct Beginning {
    rewrite: Option<Rewrite>,
    seen: Vec<u8>,
}

impl Beginning {
    pub(super) fn new(rewrite: Option<Rewrite>) -> Self {
        Self { rewrite, seen: Vec::new() }
    }

    /// The bytes to send for these: none yet, or more than they are.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Some(rewrite) = &self.rewrite else { return Some(bytes.to_vec()) };
        self.seen.extend(bytes);
        let rewritten = (rewrite.0)(&self.seen)?;
        self.rewrite = None;
        Some(rewritten)
    }
}
