//! A statement whose text is made once.

use sqlx::AssertSqlSafe;
use std::sync::Arc;

/// A statement's text, which every execution shares.
#[derive(Clone)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    pub(crate) fn new(text: String) -> Self {
        Self(text.into())
    }

    /// Only names that were checked and numbers are put into the text.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }

    /// The text itself.
    #[cfg(any(test, feature = "postgres"))]
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}
