//! What stands in a claim's node.

use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};
use tenure_core::{Claim, HolderInfo};

/// For people, and for readers behind a writer: whether it has become a reader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Card {
    claim: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    host: String,
    pid: u32,
    /// Milliseconds since 1970 by the holder's clock, for those who read the node with other tools.
    since: u128,
    /// Whether the claim holds as a reader, although its node is named as of one who is alone.
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

    /// The same for a writer that has become a reader.
    pub(crate) fn downgraded(&self) -> Self {
        Self { downgraded: true, ..self.clone() }
    }

    /// Whether who wrote this was a writer and has become a reader.
    pub(crate) fn is_downgraded(data: &[u8]) -> bool {
        serde_json::from_slice(data).is_ok_and(|Self { downgraded, .. }| downgraded)
    }

    /// Who wrote this; nothing is known of a foreign client.
    pub(crate) fn read(data: &[u8]) -> Option<HolderInfo> {
        let Self { label, host, pid, .. } = serde_json::from_slice(data).ok()?;
        Some(HolderInfo { label, host, pid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tenure_core::{ClaimId, Mode, Name};

    #[test]
    fn a_card_tells_who_holds() {
        let holder =
            HolderInfo { label: Some("nightly \"é\"".to_owned()), host: "db1".to_owned(), pid: 4_000_000 };
        let claim = Claim {
            id: ClaimId::new(),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            lease: std::time::Duration::from_secs(30),
            waits: true,
            holder: Arc::new(holder.clone()),
        };
        let card = Card::of(&claim);
        for (card, downgraded) in [(&card, false), (&card.downgraded(), true)] {
            assert_eq!(Card::read(&card.bytes()), Some(holder.clone()));
            assert_eq!(Card::is_downgraded(&card.bytes()), downgraded);
        }
        assert_eq!(Card::read(b"10.0.0.7"), None);
        assert!(!Card::is_downgraded(b"10.0.0.7"));
    }
}
