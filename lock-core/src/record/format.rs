//! The format of a record's text: which one this version reads, and what it says of others.

use serde_json::Value;
use std::fmt::Display;

/// The format that this version reads and writes. A text names its format only from the second on.
const FORMAT: u64 = 1;

/// The later format that a text, or the record in it, names.
fn later_format(text: &str) -> Option<u64> {
    let text: Value = serde_json::from_str(text).ok()?;
    let format = text.get("format").or_else(|| text.get("content")?.get("format"))?;
    format.as_u64().filter(|format| *format > FORMAT)
}

/// Says what is wrong with the text of a record, a row or a latch that `why` keeps from being read, as the end of a
/// sentence: it is of a later version, or it is damaged.
///
/// # Examples
///
/// ```
/// use tenure_core::record::{Record, unreadable};
///
/// let text = r#"{"format":2,"holders":[]}"#;
/// let why = serde_json::from_str::<Record>(text).unwrap_err();
/// assert!(unreadable(text, why).starts_with("has format 2"));
/// assert!(unreadable("{", "it ends too early").starts_with("is damaged or from another program (it ends too early)"));
/// ```
pub fn unreadable(text: &str, why: impl Display) -> String {
    match later_format(text) {
        Some(format) => {
            format!(
                "has format {format}, and this version of tenure reads format {FORMAT}; update this program"
            )
        }
        None => format!(
            "is damaged or from another program ({why}); delete it after the last lease in it has expired"
        ),
    }
}
