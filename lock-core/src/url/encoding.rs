//! Encoding of characters that would mean something else in a URL.

use super::Refusal;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Decodes `%XX`, strictly. `+` is a plus.
///
/// # Errors
///
/// For a `%` without two hexadecimal digits, and for bytes that are not UTF-8.
pub fn decode(text: &str) -> Result<String, Refusal> {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !text.split('%').skip(1).all(is_escape) {
        return Err(Refusal::new(
            "% is not followed by two hexadecimal digits",
            "write %25 where % is meant",
        ));
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| {
        let valid = "encode text as UTF-8 before its bytes are written as %XX";
        Refusal::new("what it encodes with % is not UTF-8", valid)
    })?;
    Ok(decoded.into_owned())
}

/// Encodes everything but ASCII letters and digits as `%XX`.
#[must_use]
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
