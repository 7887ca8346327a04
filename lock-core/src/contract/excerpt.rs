//! The beginning of a text, for an error that refuses it.

/// Quotes a text, or its first 40 characters.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
