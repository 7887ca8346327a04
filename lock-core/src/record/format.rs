//! The format of a record's text: which one this version reads, and what it says of others.

use serde::Deserialize;
use std::fmt::Display;

/// The format that this version reads and writes. A text names its format only from the second on.
const FORMAT: u64 = 1;

#[derive(Deserialize)]
struct Named {
    format: u64,
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
    match serde_json::from_str(text) {
        Ok(Named { format }) if format != FORMAT => {
            format!(
                "has format {format}, and this version of tenure reads format {FORMAT}; update this program"
            )
        }
        _ => format!(
            "is damaged or from another program ({why}); delete it after the last lease in it has expired"
        ),
    }
}
