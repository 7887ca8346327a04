//! A statement whose text is built once.

use sqlx::AssertSqlSafe;
use std::sync::Arc;

/// A statement's text, shared by all executions.
#[derive(Clone)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    pub(crate) fn new(text: String) -> Self {
        Self(text.into())
    }

    /// Only checked names and numbers are put into the text.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }

    /// Whether it is the same one, and not only the same text.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The text itself.
    #[cfg(any(test, feature = "_server"))]
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// A statement about a range of names, whose end is `$3`, and the same without an end. It takes two, because not every
/// encoding has a text that is greater than every name, and one with a condition for both would not stop at the end.
#[cfg(feature = "postgres")]
pub(crate) struct Ranged {
    to_end: Statement,
    to_last: Statement,
}

#[cfg(feature = "postgres")]
impl Ranged {
    /// `{end}` stands for the end in `text`.
    pub(crate) fn new(text: &str, fill: impl Fn(&str) -> Statement) -> Self {
        let with = |end| fill(&text.replace("{end}", end));
        Self { to_end: with("AND name < $3"), to_last: with("") }
    }

    pub(crate) fn before(&self, beyond: Option<&str>) -> &Statement {
        if beyond.is_some() { &self.to_end } else { &self.to_last }
    }
}

/// The parameters of a statement, in order, in the driver's form.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
macro_rules! arguments {
    ($kind:ty; $($value:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "a statement may have no parameters")]
        let mut arguments = <$kind>::default();
        $(
            sqlx::Arguments::add(&mut arguments, $value)
                .map_err(|error| tenure_core::StoreError::failed(error.to_string()))?;
        )*
        arguments
    }};
}
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) use arguments;
