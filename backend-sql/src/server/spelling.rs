//! Labels and hosts in a database whose encoding lacks characters: they are for people, so they must cost no lock.

use std::{borrow::Cow, sync::Arc};
use tenure_core::{Claim, HolderInfo};

/// A copy of the claim, with a holder that every encoding can store.
pub(crate) fn in_ascii(claim: &Claim) -> Claim {
    let HolderInfo { label, host, pid } = &*claim.holder;
    let holder = HolderInfo { label: label.as_deref().map(escaped), host: escaped(host), pid: *pid };
    Claim { holder: Arc::new(holder), ..claim.clone() }
}

/// The holder as it was before [`in_ascii`].
pub(crate) fn read(info: &mut HolderInfo) {
    for text in info.label.iter_mut().chain([&mut info.host]) {
        if let Cow::Owned(read) = unescaped(text) {
            *text = read;
        }
    }
}

/// A character that is not in ASCII becomes `\u{591c}`, and so does a backslash, so that each text is read as it was.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() && character != '\\' {
            escaped.push(character);
        } else {
            escaped.extend(character.escape_unicode());
        }
    }
    escaped
}

/// Text that is no escape stays as it is: another program may have written it.
fn unescaped(text: &str) -> Cow<'_, str> {
    let mut parts = text.split("\\u{");
    let mut read = Cow::Borrowed(parts.next().unwrap_or_default());
    for part in parts {
        let number = part
            .split_once('}')
            .and_then(|(digits, rest)| Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, rest)));
        let text = read.to_mut();
        match number {
            Some((character, rest)) => text.extend([character.encode_utf8(&mut [0; 4]), rest]),
            None => text.extend(["\\u{", part]),
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_text_is_read_as_it_was_escaped(text in ".*|(\\\\u\\{|[0-9a-f]{1,6}|\\}|\\\\|é){0,12}") {
            let escaped = escaped(&text);
            proptest::prop_assert!(escaped.is_ascii());
            proptest::prop_assert_eq!(unescaped(&escaped), &*text);
            // Another program wrote it: it may be no escape.
            let _ = unescaped(&text);
        }
    }

    #[test]
    fn text_of_another_program_stays_as_it_is() {
        assert_eq!(escaped("a ü\\"), "a \\u{fc}\\u{5c}");
        for text in ["Büro", "C:\\users", "\\u{", "\\u{x}y", "\\u{d800}", "\\u{110000}", "\\u{-1}"] {
            assert_eq!(unescaped(text), text);
        }
        assert_eq!(unescaped("\\u{q\\u{fc}"), "\\u{qü");
    }
}
