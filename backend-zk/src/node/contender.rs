//! The claim and mode in a node's name.

use super::order::parts;
use std::{num::NonZeroU32, str::FromStr};
use tenure_core::{ClaimId, Mode, Token};
use uuid::Uuid;

/// How [Curator](https://github.com/apache/curator/blob/apache-curator-5.4.0/curator-recipes/src/main/java/org/apache/curator/framework/recipes/locks/InterProcessReadWriteLock.java)
/// marks the nodes of its readers.
const READER: &str = "__READ__";
/// And those of its writers.
const WRITER: &str = "__WRIT__";
/// How [kazoo](https://github.com/python-zk/kazoo/blob/2.11.0/kazoo/recipe/lock.py) marks the nodes of its readers.
const KAZOO_READER: &str = "__rlock__";
/// How both mark the nodes of exclusive claims. To other clients a permit's node looks like one.
const LOCK: &str = "lock-";

/// How the name of a claim's node begins, before its number: [Curator's protected
/// form](https://github.com/apache/curator/blob/apache-curator-5.4.0/curator-framework/src/main/java/org/apache/curator/framework/imps/ProtectedMode.java),
/// by which a node can be found if the reply to its creation was lost, and the mode.
///
/// `read_write`: whether exclusive claims are named like writers of Curator's read-write lock, not like its mutex.
pub(crate) fn prefix(claim: ClaimId, mode: Mode, read_write: bool) -> String {
    match mode {
        Mode::Shared => format!("_c_{claim}-{READER}"),
        Mode::Permit { take, of } => format!("_c_{claim}-permit-{take}-of-{of}-{LOCK}"),
        _ if read_write => format!("_c_{claim}-{WRITER}"),
        _ => format!("_c_{claim}-{LOCK}"),
    }
}

/// The name of an upgraded reader's node: with the same number, so in the same place, and with the token, because the
/// new node has another `czxid`.
pub(crate) fn upgraded(claim: ClaimId, token: Token, reader: &str) -> Option<String> {
    let (own, _) = parts(reader)?;
    let number = reader.strip_prefix(own)?;
    Some(format!("_c_{claim}-from-{token}-{WRITER}{number}"))
}

/// The claim of this node; `None` for a foreign client's node.
pub(crate) fn claim_of(node: &str) -> Option<ClaimId> {
    let (uuid, form) = protected(node)?;
    let ours = [LOCK, READER, WRITER, "permit-", "from-"].iter().any(|ours| form.starts_with(ours));
    ours.then(|| ClaimId::from_str(uuid).ok())?
}

/// The token in the name of an upgraded node.
pub(crate) fn token_of(node: &str) -> Option<Token> {
    let (token, mark) = protected(node)?.1.strip_prefix("from-")?.split_once('-')?;
    mark.starts_with(WRITER).then(|| Token::new(number(token)?))?
}

/// The mode of the node's claim, and its number; `None` if the node does not contend.
///
/// A node that is not known as a reader's or for permits is exclusive.
pub(crate) fn contends(node: &str) -> Option<(Mode, i32)> {
    let (own, number) = parts(node)?;
    let mode = if own.ends_with(READER) || own.ends_with(KAZOO_READER) {
        Mode::Shared
    } else {
        permits(own).unwrap_or(Mode::Exclusive)
    };
    Some((mode, number))
}

/// The UUID of a node in Curator's protected form, and the text after it.
fn protected(node: &str) -> Option<(&str, &str)> {
    let (uuid, rest) =
        node.strip_prefix("_c_")?.split_at_checked(Uuid::nil().hyphenated().to_string().len())?;
    Some((uuid, rest.strip_prefix('-')?))
}

fn permits(own: &str) -> Option<Mode> {
    let form = protected(own)?.1.strip_prefix("permit-")?.strip_suffix(LOCK)?;
    let (take, of) = form.strip_suffix('-')?.split_once("-of-")?;
    let (take, of): (NonZeroU32, NonZeroU32) = (number(take)?, number(of)?);
    (take <= of).then_some(Mode::Permit { take, of })
}

/// A number as we write it: no sign, no leading zeros.
pub(crate) fn number<N: FromStr>(text: &str) -> Option<N> {
    text.starts_with(|first| matches!(first, '1'..='9')).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn permit(take: u32, of: u32) -> Mode {
        let number = |n| NonZeroU32::new(n).unwrap();
        Mode::Permit { take: number(take), of: number(of) }
    }

    #[test]
    fn foreign_nodes_are_recognized_by_name() {
        let claim = ClaimId::new();
        for node in ["_c_not-a-uuid-lock-0000000007", &format!("{claim}__lock__0000000007")] {
            assert_eq!((claim_of(node), contends(node)), (None, Some((Mode::Exclusive, 7))), "{node}");
        }
        assert_eq!(claim_of(&format!("_c_{claim}-latch-0000000007")), None);
        assert_eq!(contends("27d6__rlock__0000000007"), Some((Mode::Shared, 7)));
        assert_eq!(contends("keeper"), None);
    }

    #[test]
    fn malformed_permits_are_exclusive() {
        let claim = ClaimId::new();
        for form in [
            "permit-0-of-4-lock-",
            "permit-5-of-4-lock-",
            "permit-1-of-4-",
            "permit-1-lock-",
            "permit--1-of-2-lock-",
            "permit-+1-of-4-lock-",
            "permit-1-of-04-lock-",
        ] {
            let node = format!("_c_{claim}-{form}0000000007");
            assert_eq!(contends(&node), Some((Mode::Exclusive, 7)), "{node}");
        }
        assert_eq!(contends("permit-1-of-4-lock-0000000007"), Some((Mode::Exclusive, 7)));
    }

    #[test]
    fn malformed_tokens_are_ignored() {
        let claim = ClaimId::new();
        for form in
            ["from-+5-__WRIT__", "from-05-__WRIT__", "from-0-__WRIT__", "from-5-lock-", "from--5-__WRIT__"]
        {
            assert_eq!(token_of(&format!("_c_{claim}-{form}0000000007")), None, "{form}");
        }
    }

    /// Names that are nearly of our forms.
    fn nearly() -> impl Strategy<Value = String> {
        let uuid = prop_oneof![
            4 => Just("7a8d1c2e-9c3b-4a1e-8d5c-9d1f6d7b1c11"),
            1 => Just("7a8d1c2e9c3b4a1e8d5c9d1f6d7b1c11"),
            1 => Just("not-a-uuid-not-a-uuid-not-a-uuid-é"),
        ];
        let number =
            || prop_oneof![3 => (1..5_u32).prop_map(|n| n.to_string()), 1 => "[+-]?0{0,2}[0-9]{0,21}"];
        let form = prop_oneof![
            Just(LOCK.to_owned()),
            Just(READER.to_owned()),
            Just(KAZOO_READER.to_owned()),
            (number(), number()).prop_map(|(take, of)| format!("permit-{take}-of-{of}-{LOCK}")),
            (number(), prop_oneof![Just(WRITER), Just(LOCK), Just("")])
                .prop_map(|(token, mark)| format!("from-{token}-{mark}")),
            ".{0,12}",
        ];
        let end = prop_oneof![3 => any::<i32>().prop_map(|n| format!("{n:010}")), 1 => "-?[0-9]{8,12}"];
        (prop_oneof![4 => Just("_c_"), 1 => Just("")], uuid, "-{0,2}", form, end)
            .prop_map(|(c, uuid, dash, form, end)| format!("{c}{uuid}{dash}{form}{end}"))
    }

    proptest! {
        /// A node that counts as a reader, as permits or as one with a token has the form that we would write.
        #[test]
        fn only_our_forms_are_read(node in prop_oneof![4 => nearly(), 1 => any::<String>()]) {
            let claim = claim_of(&node);
            if let Some(token) = token_of(&node) {
                let uuid = protected(&node).unwrap().0;
                prop_assert!(node.starts_with(&format!("_c_{uuid}-from-{token}-{WRITER}")), "{}", node);
            }
            match contends(&node) {
                None => prop_assert!(parts(&node).is_none()),
                Some((Mode::Exclusive, _)) => {}
                Some((Mode::Shared, _)) => {
                    prop_assert!(node.contains(READER) || node.contains(KAZOO_READER), "{}", node);
                }
                Some((mode @ Mode::Permit { take, of }, number)) => {
                    prop_assert!(take <= of);
                    if let Some(claim) = claim {
                        prop_assert_eq!(&node, &format!("{}{number:010}", prefix(claim, mode, false)));
                    }
                }
                Some((mode, _)) => prop_assert!(false, "{mode} of {node}"),
            }
        }

        #[test]
        fn node_is_read_as_written(number: i32, of in prop_oneof![1..=3_u32, 1..=u32::MAX], take: prop::sample::Index, read_write: bool) {
            let claim = ClaimId::new();
            let take = u32::try_from(take.index(of as usize)).unwrap() + 1;
            for mode in [Mode::Exclusive, Mode::Shared, permit(take, of)] {
                let node = format!("{}{number:010}", prefix(claim, mode, read_write));
                prop_assert_eq!((claim_of(&node), contends(&node)), (Some(claim), Some((mode, number))), "{}", node);
                prop_assert_eq!(token_of(&node), None);
            }
        }

        #[test]
        fn upgraded_node_keeps_its_place_and_token(number: i32, token in 1..u64::MAX >> 1) {
            let (claim, token) = (ClaimId::new(), Token::new(token).unwrap());
            let reader = format!("{}{number:010}", prefix(claim, Mode::Shared, false));
            let writer = upgraded(claim, token, &reader).unwrap();
            prop_assert_eq!(contends(&writer), Some((Mode::Exclusive, number)));
            prop_assert_eq!((claim_of(&writer), token_of(&writer)), (Some(claim), Some(token)));
        }
    }
}
