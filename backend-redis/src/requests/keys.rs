//! Where a name lives in Redis: its keys, and why they share a slot.

use std::{iter, sync::LazyLock};
use tenure_core::{ClaimId, Name};

/// Separates tenure's own keys from the lock's key. Names and prefixes contain no control characters, so a key of
/// tenure's own is never the lock of another name.
const OWN: char = '\u{1f}';

/// The lock's key: the prefix and the name, exactly, so that other clients can meet there.
pub(crate) fn lock(prefix: &str, name: &Name) -> String {
    [prefix, name].concat()
}

/// The name whose lock this key is, unless it is one of tenure's own keys or no name at all.
pub(crate) fn name_of(prefix: &str, key: &str) -> Option<Name> {
    key.strip_prefix(prefix).and_then(|name| Name::new(name).ok())
}

/// The key of a lock's record: its last token, and its holder.
pub(crate) fn record(lock: &str) -> String {
    sibling(lock, "r")
}

/// The key that stops newcomers: while it exists, an exclusive claim waits.
pub(crate) fn stop(lock: &str) -> String {
    sibling(lock, "x")
}

/// The key of a lock's queue: its waiters in order.
pub(crate) fn queue(lock: &str) -> String {
    sibling(lock, "q")
}

/// The key of the waiters' descriptions in the queue.
pub(crate) fn waiters(lock: &str) -> String {
    sibling(lock, "w")
}

/// The key of the latch that has the name of a lock.
pub(crate) fn latch(lock: &str) -> String {
    sibling(lock, "l")
}

/// The channel on which one client is told that its turn has come.
pub(crate) fn inbox(prefix: &str, client: ClaimId) -> String {
    format!("{prefix}{OWN}{client}")
}

/// Whether a channel is a client's inbox, not a lock's channel.
pub(crate) fn is_inbox(channel: &str) -> bool {
    channel.contains(OWN)
}

/// A key of tenure's own, in the Cluster slot of `lock`.
///
/// Redis [hashes](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags) the text
/// between the first `{` and the next `}`, or the whole key if there is none. So a key with a tag keeps its slot when
/// something is appended, and a key without braces becomes the tag of its sibling. For a key with braces but no tag
/// neither works: its sibling ends with the smallest number that leads to the same slot.
fn sibling(lock: &str, kind: &str) -> String {
    if !lock.contains(['{', '}']) {
        return format!("{lock}{OWN}{{{lock}}}{kind}");
    }
    let plain = format!("{lock}{OWN}{kind}");
    if tag(lock).is_some() {
        return plain;
    }
    let number = number_to(slot(lock.as_bytes()), crc16(0, plain.as_bytes()));
    plain + &number
}

/// The smallest number whose digits lead from a checksum to a slot.
///
/// The checksum is linear: digits change it as zeros would, exclusive or their own checksum. So the last three digits
/// come from a table, and only about 17 numbers before them are tried, of 256 at most.
fn number_to(slot: u16, begun: u16) -> String {
    let mut short = (0..100).map(|number: u16| number.to_string());
    if let Some(number) = short.find(|number| crc16(begun, number.as_bytes()) % SLOTS == slot) {
        return number;
    }
    let mut heads = iter::once(String::new()).chain((1..256).map(|head: u16| head.to_string()));
    let number = heads.find_map(|head| {
        let after = slot ^ crc16(crc16(begun, head.as_bytes()), &[0; 3]);
        let number = format!("{head}{:03}", ENDS[usize::from(after % SLOTS)]?);
        (!number.starts_with('0')).then_some(number)
    });
    number.expect("a number below 256000 leads from each checksum to each slot")
}

/// For each slot, the three digits that lead to it from the checksum 0, if there are any. No others do.
static ENDS: LazyLock<Vec<Option<u16>>> = LazyLock::new(|| {
    let mut ends = vec![None; usize::from(SLOTS)];
    for end in 0..1000_u16 {
        ends[usize::from(slot(format!("{end:03}").as_bytes()))] = Some(end);
    }
    ends
});

/// The part of a key that decides its slot, if there is one.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The slot of a key.
pub(crate) fn slot_of(key: &str) -> u16 {
    slot(tag(key).unwrap_or(key).as_bytes())
}

/// How many slots a Cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of bytes without a tag.
fn slot(bytes: &[u8]) -> u16 {
    crc16(0, bytes) % SLOTS
}

/// CRC-16/XMODEM, as Redis Cluster uses it, continued from `crc`.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| (crc << 8) ^ CRCS[usize::from((crc >> 8) ^ u16::from(*byte))])
}

/// The checksum of each single byte.
const CRCS: [u16; 256] = {
    let mut crcs = [0; 256];
    let mut byte = 0_u16;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        crcs[byte as usize] = crc;
        byte += 1;
    }
    crcs
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The slot of a key, by the letter of the specification.
    fn specified(key: &str) -> u16 {
        let bytes = key.as_bytes();
        let open = bytes.iter().position(|byte| *byte == b'{');
        let tag = open.and_then(|open| {
            let close = bytes[open..].iter().position(|byte| *byte == b'}')? + open;
            (close > open + 1).then(|| &bytes[open + 1..close])
        });
        slot(tag.unwrap_or(bytes))
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(0, b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{foo}bar"), slot_of("foo"));
        assert_ne!(slot_of("foo{}bar"), slot_of("foo"));
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
    }

    /// Searched for one by one, as versions before these numbers were calculated did.
    #[test]
    fn numbers_are_the_smallest_that_lead_to_the_slot() {
        let cases = [
            ("é7/%7}{", "r", 1),
            ("tenure:%} 7é} //a a", "r", 60),
            ("tenure:{}{a}", "q", 214),
            ("tenure:a{{ a 7//%77%", "r", 965),
            ("tenure:{", "x", 1_320),
            ("7 }a7/a7}éa%/}}/}é}%/{{", "r", 7_934),
            ("tenure:}", "x", 16_990),
            ("tenure:a}b{c", "q", 67_927),
            ("tenure:{}", "l", 128_437),
        ];
        for (lock, kind, number) in cases {
            assert_eq!(sibling(lock, kind), format!("{lock}\u{1f}{kind}{number}"));
        }
        // Its own tag leads there.
        assert_eq!(record("tenure:{a}b"), "tenure:{a}b\u{1f}r");
    }

    proptest! {
        #[test]
        fn sibling_keys_share_the_slot_and_are_no_lock(
            prefix in "[a{}:]{0,3}",
            name in "[ab{}é]{1,8}",
            kind in "[a-z]",
        ) {
            let lock = lock(&prefix, &Name::new(name).unwrap());
            let sibling = sibling(&lock, &kind);
            prop_assert_eq!(specified(&sibling), specified(&lock), "{}", sibling);
            prop_assert_eq!(slot_of(&lock), specified(&lock), "{}", lock);
            prop_assert!(sibling.starts_with(&lock));
            prop_assert_eq!(name_of(&prefix, &sibling), None);
        }

        #[test]
        fn different_locks_have_different_siblings(one in "[ab{}]{1,6}", other in "[ab{}]{1,6}") {
            prop_assume!(one != other);
            prop_assert_ne!(record(&one), record(&other));
        }
    }
}
