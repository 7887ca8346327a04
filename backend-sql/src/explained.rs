//! An error with an explanation, and the driver's error as its source.

use std::{error::Error, fmt};

/// The failure and the next step, with the driver's error as its source.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Explained {
    what: String,
    source: Said,
}

impl Explained {
    pub(crate) fn new(what: String, source: sqlx::Error) -> Self {
        Self { what, source: Said(source) }
    }
}

/// Shows of a server's error only its message: the driver adds a line number of the server's own source code.
#[derive(Debug)]
struct Said(sqlx::Error);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_database_error() {
            Some(error) => f.write_str(error.message()),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl Error for Said {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if self.0.as_database_error().is_some() { None } else { self.0.source() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_of_driver_error_stays() {
        let error = std::io::Error::other("connection reset");
        let explained = Explained::new("no connection".to_owned(), sqlx::Error::Io(error));
        let said = explained.source().expect("the driver's error");
        assert!(said.to_string().contains("connection reset") && said.source().is_some(), "{said:?}");
    }
}
