//! The data of a claim's node.

use super::contender::claim_of;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};
use tenure_core::{Claim, HolderInfo};

/// Read by people, and by readers behind a writer, to learn whether it has become a reader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Card {
    claim: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    host: String,
    pid: u32,
    /// Milliseconds since 1970 by the holder's clock, for people who read the node with other tools.
    since: u128,
    /// Whether the claim holds as a reader, although its node's name says that it is exclusive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    downgraded: bool,
}

impl Card {
    pub(crate) fn of(claim: &Claim) -> Self {
        let HolderInfo { label, host, pid } = &*claim.holder;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let (claim, label, host) = (claim.id.to_string(), label.clone(), host.clone());
        Self { claim, label, host, pid: *pid, since, downgraded: false }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// This card for a writer that has become a reader.
    pub(crate) fn downgraded(&self) -> Self {
        Self { downgraded: true, ..self.clone() }
    }

    /// Whether this node's claim was a writer and has become a reader.
    pub(crate) fn is_downgraded(node: &str, data: &[u8]) -> bool {
        Self::find(node, data).is_some_and(|card| card.downgraded)
    }

    /// The client that made this node; `None` for a foreign client.
    pub(crate) fn read(node: &str, data: &[u8]) -> Option<HolderInfo> {
        let Self { label, host, pid, .. } = Self::find(node, data)?;
        Some(HolderInfo { label, host, pid })
    }

    /// Reads the card in this node. A card of another claim is a copy, so it is ignored.
    fn find(node: &str, data: &[u8]) -> Option<Self> {
        let card: Self = serde_json::from_slice(data).ok()?;
        (card.claim == claim_of(node)?.to_string()).then_some(card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::contender::prefix;
    use proptest::prelude::*;
    use tenure_core::{ClaimId, Mode};

    fn node(claim: ClaimId) -> String {
        format!("{}0000000007", prefix(claim, Mode::Exclusive, false))
    }

    #[test]
    fn card_of_another_claim_is_ignored() {
        let mine = ClaimId::new();
        let data = format!(r#"{{"claim":"{mine}","host":"h","pid":1,"since":1,"downgraded":true}}"#);
        assert!(Card::is_downgraded(&node(mine), data.as_bytes()));
        for other in [node(ClaimId::new()), format!("{mine}__lock__0000000007"), "0000000007".to_owned()] {
            assert!(!Card::is_downgraded(&other, data.as_bytes()), "{other}");
            assert_eq!(Card::read(&other, data.as_bytes()), None, "{other}");
        }
    }

    /// A field as JSON, and whether a card may have it there.
    fn field(good: &'static str) -> impl Strategy<Value = (String, bool)> {
        let odd = prop_oneof![
            Just("null".to_owned()),
            Just("{}".to_owned()),
            Just("[[".repeat(200)),
            Just("-1".to_owned()),
            Just("1e400".to_owned()),
            Just("\"\\ud800\"".to_owned()),
            Just("340282366920938463463374607431768211456".to_owned()),
            ".{0,8}".prop_map(|text| format!("\u{1}{text}")),
        ];
        prop_oneof![8 => Just((good.to_owned(), true)), 1 => odd.prop_map(|text| (text, false))]
    }

    proptest! {
        #[test]
        fn card_is_read_as_written(label: Option<String>, host: String, pid: u32, downgraded: bool) {
            let id = ClaimId::new();
            let card = Card { claim: id.to_string(), label, host, pid, since: 1, downgraded };
            let holder = HolderInfo { label: card.label.clone(), host: card.host.clone(), pid };
            prop_assert_eq!(Card::read(&node(id), &card.bytes()), Some(holder));
            prop_assert_eq!(Card::is_downgraded(&node(id), &card.bytes()), downgraded);
        }

        #[test]
        fn data_without_a_card_is_ignored(data: Vec<u8>) {
            let node = node(ClaimId::new());
            prop_assert_eq!(Card::read(&node, &data), None);
            prop_assert!(!Card::is_downgraded(&node, &data));
        }

        #[test]
        fn damaged_card_is_ignored(
            host in field("\"db1\""),
            pid in field("4294967295"),
            since in field("340282366920938463463374607431768211455"),
            downgraded in field("true"),
            torn in any::<prop::sample::Index>(),
        ) {
            let claim = ClaimId::new();
            let [(host, a), (pid, b), (since, c), (downgraded, d)] = [host, pid, since, downgraded];
            let data = format!(
                r#"{{"claim":"{claim}","host":{host},"pid":{pid},"since":{since},"downgraded":{downgraded},"x":[1]}}"#
            );
            let (node, whole) = (node(claim), a && b && c && d);
            prop_assert_eq!(Card::is_downgraded(&node, data.as_bytes()), whole, "{}", data);
            prop_assert_eq!(Card::read(&node, data.as_bytes()).is_some(), whole, "{}", data);
            prop_assert!(!Card::is_downgraded(&node, &data.as_bytes()[..torn.index(data.len())]));
        }
    }
}
