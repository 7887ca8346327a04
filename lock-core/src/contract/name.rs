//! The name of a lock.

use super::excerpt::excerpt;
use serde::{Deserialize, Serialize};
use std::{borrow::Borrow, fmt, ops::Deref, str::FromStr, sync::Arc};

/// A lock's name: 1 to 200 bytes of UTF-8 without control characters.
///
/// The rules are the same on every store, and names are compared exactly: `A` is not `a`, `job ` is not `job`, and `/`,
/// `%`, `{}`, `..`, quotes and spaces are ordinary characters. Each store encodes what it must.
///
/// Cloning is cheap. It is serialized as text, and deserializing checks it.
///
/// # Examples
///
/// ```
/// use tenure_core::Name;
///
/// let name = Name::new("orders/42")?;
/// assert_eq!(name.as_str(), "orders/42");
/// assert_eq!("orders/42".parse(), Ok(name.clone()));
/// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
/// let lock = locks.lock(&name); // a checked name works wherever a string does
/// assert!(Name::new("").is_err());
/// assert!(Name::new("two\nlines").is_err());
/// # Ok::<(), tenure_core::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The maximum length of a name, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// Makes a name of `text`, after checking it.
    ///
    /// # Errors
    ///
    /// [`InvalidName`] if `text` is empty, longer than [`MAX_BYTES`](Self::MAX_BYTES), or contains a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
        let text = text.as_ref();
        let broken = if text.is_empty() {
            "it is empty".to_owned()
        } else if text.len() > Self::MAX_BYTES {
            format!("it has {} bytes", text.len())
        } else if let Some((at, found)) = text.chars().enumerate().find(|(_, c)| c.is_control()) {
            format!("character {} is the control character {found:?}", at + 1)
        } else {
            return Ok(Self(text.into()));
        };
        Err(InvalidName { given: excerpt(text), broken })
    }

    /// Returns the name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why a text is not a valid lock name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid name {given}: {broken}; expected 1 to 200 bytes of UTF-8 without control characters")]
pub struct InvalidName {
    given: String,
    broken: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deserialized_name_is_checked() {
        let error = serde_json::from_str::<Name>(r#""two\nlines""#).unwrap_err().to_string();
        assert!(error.contains("control character"), "{error}");
    }
}
