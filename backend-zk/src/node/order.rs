//! The order of the nodes in a queue, read from their names.

/// Splits a sequential node's name into its own part and the number that `ZooKeeper` appended; `None` if it does not
/// end in a number.
///
/// The server formats a 32-bit counter with `%010d`
/// ([`PrepRequestProcessor`](https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-server/src/main/java/org/apache/zookeeper/server/PrepRequestProcessor.java#L677)).
/// A counter that has wrapped is negative: its minus sign is one of the ten characters, or an eleventh one before ten
/// digits. The eleventh could also be the last character of the name's own part (`lock-1000000000`). It counts as a
/// sign only after another separator, because every lock recipe ends its part with one.
pub(crate) fn parts(node: &str) -> Option<(&str, i32)> {
    let (own, number) = node.split_at_checked(node.len().checked_sub(10)?)?;
    let digits = number.strip_prefix('-').unwrap_or(number);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || number == "-000000000" {
        return None;
    }
    let number: i64 = number.parse().ok()?;
    let negative = number >= 1_000_000_000 && (own.ends_with("--") || own.ends_with("_-") || own == "-");
    let (own, number) = if negative { (&own[..own.len() - 1], -number) } else { (own, number) };
    Some((own, i32::try_from(number).ok()?))
}

/// How far `number` is behind `from`, negative if it is before: serial number arithmetic, [RFC
/// 1982](https://www.rfc-editor.org/rfc/rfc1982). Correct as long as fewer than 2³¹ numbers are between the two.
pub(crate) fn offset(number: i32, from: i32) -> i32 {
    number.wrapping_sub(from)
}

/// Whether numbers around `number` give no order.
///
/// Servers from 3.6 never let a node's counter fall (`ZOOKEEPER-3249`), so it stops at its greatest value. Only
/// creations that overtake it in the server's pipeline get the negative numbers after it. In that region two nodes may
/// have the same number, and a later node an earlier number.
pub(crate) fn tells_nothing(number: i32) -> bool {
    const PIPELINE: i32 = 1 << 20;
    number == i32::MAX || number < i32::MIN + PIPELINE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_recipe_is_read() {
        for (node, number) in [
            ("_c_7a8d-lock-0000000042", Some(42)),
            ("_c_7a8d-lock-2147483647", Some(i32::MAX)),
            ("_c_7a8d-lock--2147483648", Some(i32::MIN)),
            ("_c_7a8d-lock--000000001", Some(-1)),
            ("_c_7a8d-lock-1000000000", Some(1_000_000_000)),
            ("_c_7a8d-lock--1000000000", Some(-1_000_000_000)),
            ("x-72057594-1000000000", Some(1_000_000_000)),
            ("0f3a__lock__0000000007", Some(7)),
            ("0f3a__lock__-1000000007", Some(-1_000_000_007)),
            ("0000000003", Some(3)),
            ("-1000000003", Some(-1_000_000_003)),
            ("lock-9999999999", None),
            ("lock-000000042", Some(-42)),
            ("lock-000000000", None),
            ("leases", None),
            ("", None),
            ("ünïcödë-lock-000000ü042", None),
        ] {
            assert_eq!(parts(node).map(|(_, number)| number), number, "{node}");
        }
    }

    proptest! {
        #[test]
        fn nothing_else_is_read(node in "(.|[-_])*(-{0,2}[0-9]{8,11}|.{0,3})") {
            if let Some((own, number)) = parts(&node) {
                prop_assert_eq!(format!("{own}{number:010}"), node);
            }
        }

        #[test]
        fn order_survives_the_wrap(number: i32, later in 1..i32::MAX) {
            let after = number.wrapping_add(later);
            prop_assert_eq!(offset(after, number), later);
            prop_assert_eq!(offset(number, after), -later);
        }
    }
}
