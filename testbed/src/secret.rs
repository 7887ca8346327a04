//! Text that may hold a password.

use std::fmt;

/// A URL that may hold a password, so it is never shown by `Debug`.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
