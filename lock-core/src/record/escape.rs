//! Keys for stores that take few characters.

use std::fmt::Write;

/// The key with `=XX` for each byte but ASCII letters, digits, `-`, `_` and `/`: no two keys give the same text.
///
/// # Examples
///
/// ```
/// use tenure_core::record::{escape, unescape};
///
/// assert_eq!(escape("lock/é.1"), "lock/=C3=A9=2E1");
/// assert_eq!(unescape("lock/=C3=A9=2E1").as_deref(), Some("lock/é.1"));
/// assert_eq!(unescape("lock/=C"), None);
/// ```
#[must_use]
pub fn escape(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' => text.push(char::from(byte)),
            _ => _ = write!(text, "={byte:02X}"),
        }
    }
    text
}

/// The key of which [`escape`] gives this text; `None` if there is none.
#[must_use]
pub fn unescape(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((plain, escaped)) = rest.split_once('=') {
        bytes.extend_from_slice(plain.as_bytes());
        let digits = escaped.get(..2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &escaped[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok().filter(|key| escape(key) == text)
}
