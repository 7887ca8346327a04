//! One claim's node in the queue.

use crate::order::sequence;
use serde::{Deserialize, Serialize};
use std::{
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};
use tenure_core::{Claim, ClaimId, HolderInfo};
use uuid::Uuid;

/// What the names of a claim's nodes begin with: [Curator's protected form](https://github.com/apache/curator/blob/apache-curator-5.4.0/curator-framework/src/main/java/org/apache/curator/framework/imps/ProtectedMode.java),
/// by which a node is found again after the reply to its creation was lost.
pub(crate) fn prefix(claim: ClaimId) -> String {
    format!("_c_{claim}-lock-")
}

/// The claim whose node this is; `None` for a node in another client's form.
pub(crate) fn claim_of(node: &str) -> Option<ClaimId> {
    let (uuid, rest) =
        node.strip_prefix("_c_")?.split_at_checked(Uuid::nil().hyphenated().to_string().len())?;
    rest.starts_with("-lock-").then_some(())?;
    ClaimId::from_str(uuid).ok()
}

/// The nodes that stand in the queue, whoever made them.
pub(crate) fn contenders(children: &[String]) -> impl Iterator<Item = (i32, &str)> {
    children.iter().filter_map(|node| Some((sequence(node)?, node.as_str())))
}

/// What stands in the node, for people.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Card {
    claim: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    host: String,
    pid: u32,
    /// Milliseconds since 1970 by the holder's clock, for those who read the node with other tools.
    since: u128,
}

impl Card {
    pub(crate) fn bytes(claim: &Claim) -> Vec<u8> {
        let HolderInfo { label, host, pid } = &*claim.holder;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let card =
            Self { claim: claim.id.to_string(), label: label.clone(), host: host.clone(), pid: *pid, since };
        serde_json::to_vec(&card).unwrap_or_default()
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
    use tenure_core::{Mode, Name};

    #[test]
    fn a_claim_is_found_in_its_nodes_name() {
        let claim = ClaimId::new();
        assert_eq!(claim_of(&format!("{}0000000007", prefix(claim))), Some(claim));
        assert_eq!(claim_of("_c_not-a-uuid-lock-0000000007"), None);
        assert_eq!(claim_of(&format!("{claim}__lock__0000000007")), None);
        assert_eq!(claim_of(&format!("_c_{claim}-latch-0000000007")), None);
    }

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
        assert_eq!(Card::read(&Card::bytes(&claim)), Some(holder));
        assert_eq!(Card::read(b"10.0.0.7"), None);
    }
}
