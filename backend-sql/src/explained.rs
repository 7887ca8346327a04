//! An error with an explanation, and the driver's error as its source.

/// The failure and the next step, with the driver's error as its source.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Explained {
    what: String,
    #[source]
    source: sqlx::Error,
}

impl Explained {
    pub(crate) fn new(what: String, source: sqlx::Error) -> Self {
        Self { what, source }
    }
}
