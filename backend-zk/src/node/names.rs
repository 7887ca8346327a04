//! Lock names as path elements.

/// Encodes a lock's name as one path element: different for every name, and the name itself if `ZooKeeper` allows it.
///
/// Characters that are not allowed, and `%` itself, are written as `%` and two hexadecimal digits for each UTF-8 byte.
/// `at_root`: whether the element is directly under the root, where `zookeeper` is reserved.
///
/// The rules of `ZooKeeper`: [The ZooKeeper data
/// model](https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#ch_zkDataModel). It compares UTF-16 units,
/// so characters beyond U+FFFF are refused too.
pub(crate) fn encode(name: &str, at_root: bool) -> String {
    let relative = matches!(name, "." | "..");
    let reserved = at_root && name == "zookeeper";
    let mut element = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        if is_plain(c) && !(relative && c == '.') && !(reserved && at == 0) {
            element.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                element.push('%');
                element.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
            }
        }
    }
    element
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn is_plain(c: char) -> bool {
    !matches!(c, '%' | '/' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{d7ff}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// Decodes an element; `None` if no name is encoded like this.
pub(crate) fn decode(element: &str, at_root: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(element.len());
    let mut rest = element.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        rest = after;
        let digits = [*high, *low];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    let name = String::from_utf8(bytes).ok()?;
    (encode(&name, at_root) == element).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_are_not_encoded() {
        for name in [
            "orders",
            "Orders 42",
            "a.b",
            "...",
            "grüße",
            "zookeeper",
            "{a}b*\"'",
            "名前",
            "a ",
            "-0000000001",
        ] {
            assert_eq!(encode(name, false), name);
        }
    }

    #[test]
    fn reserved_characters_are_encoded_as_bytes() {
        for (name, element) in [
            ("orders/42", "orders%2F42"),
            ("%2F", "%252F"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("\u{e000}", "%EE%80%80"),
            ("\u{ffff}", "%EF%BF%BF"),
            ("🔒", "%F0%9F%94%92"),
        ] {
            assert_eq!(encode(name, false), element);
            assert_eq!(decode(element, false).as_deref(), Some(name));
        }
        assert_eq!(encode("zookeeper", true), "%7Aookeeper");
        assert_eq!(encode("zookeepers", true), "zookeepers");
    }

    #[test]
    fn foreign_elements_are_no_names() {
        for element in ["%", "%4", "%zz", "%2f", "%41", "%FF", "%+5", "."] {
            assert_eq!(decode(element, false), None, "{element}");
        }
    }

    proptest! {
        #[test]
        fn name_is_decoded_as_encoded(name in "\\PC{1,40}|[./%zoke]{1,5}", at_root: bool) {
            let element = encode(&name, at_root);
            prop_assert!(!element.contains('/') && !matches!(&*element, "." | ".."));
            prop_assert!(element.chars().all(is_plain_or_percent));
            prop_assert_eq!(decode(&element, at_root), Some(name));
        }

        /// Otherwise two nodes would be one lock.
        #[test]
        fn each_name_has_one_element(element in "([%./zoke0-9A-Fa-f+-]|%[2-7][0-9A-F]|.){0,12}", at_root: bool) {
            if let Some(name) = decode(&element, at_root) {
                prop_assert_eq!(encode(&name, at_root), element);
            }
        }
    }

    fn is_plain_or_percent(c: char) -> bool {
        c == '%' || is_plain(c)
    }
}
