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

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn no_connection(source: sqlx::Error) -> Self {
        let is_other = matches!(source, sqlx::Error::Protocol(_));
        let source = Said(source);
        let what = if is_other {
            "no connection: the answer is not in the database's protocol; check host and port".to_owned()
        } else {
            format!("no connection: {source}")
        };
        Self { what, source }
    }
}

/// Leaves out what the driver adds: a line number of the server's own source code, and words before the system's.
#[derive(Debug)]
struct Said(sqlx::Error);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            sqlx::Error::Database(error) => f.write_str(error.message()),
            sqlx::Error::Io(error) => fmt::Display::fmt(error, f),
            error => fmt::Display::fmt(error, f),
        }
    }
}

impl Error for Said {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if self.0.as_database_error().is_some() { None } else { self.0.source() }
    }
}

#[cfg(all(test, any(feature = "mysql", feature = "postgres")))]
mod tests {
    use super::*;

    #[test]
    fn source_of_driver_error_stays() {
        let error = std::io::Error::other("connection reset");
        let explained = Explained::no_connection(sqlx::Error::Io(error));
        assert_eq!(explained.to_string(), "no connection: connection reset");
        let said = explained.source().expect("the driver's error");
        assert!(said.to_string() == "connection reset" && said.source().is_some(), "{said:?}");
        // As an HTTP server causes it.
        let explained = Explained::no_connection(sqlx::Error::Protocol("0x48".to_owned()));
        assert!(explained.to_string().contains("check host and port"), "{explained}");
    }
}
