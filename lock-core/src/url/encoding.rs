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
        return Err(Refusal::new("% without two hexadecimal digits after it", "write % as %25"));
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| {
        let valid = "write each byte of the UTF-8 text as %XX";
        Refusal::new("percent-encoded text is not UTF-8", valid)
    })?;
    Ok(decoded.into_owned())
}

/// Encodes everything but ASCII letters and digits as `%XX`.
#[must_use]
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_is_decoded_as_encoded(text: String) {
            let encoded = encode(&text);
            prop_assert!(encoded.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'%'));
            prop_assert_eq!(decode(&encoded).unwrap(), text);
        }

        /// Text with a `%` is refused or means other text, and any other text means itself.
        #[test]
        fn decoding_changes_only_escapes(text in "([%0-9a-fA-Fé+/]|%[0-9a-f]{2}|%e2%82%ac|\\PC){0,12}") {
            match decode(&text) {
                Ok(decoded) => prop_assert_eq!(decoded == text, !text.contains('%')),
                Err(_) => prop_assert!(text.contains('%')),
            }
        }
    }
}
