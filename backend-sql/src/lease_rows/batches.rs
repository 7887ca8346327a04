//! The parameter of statements about several rows: a JSON array of objects.

use super::record_rows::mode_column;
#[cfg(feature = "_server")]
use super::{lease_table::Swap, record_rows::Row};
use crate::values::millis;
use serde_json::json;
use tenure_core::{Claim, Grant, StoreError};
#[cfg(feature = "_server")]
use tenure_core::{HolderInfo, Name};

/// Name, claim, lease in ms, and mode as in its column.
pub(crate) fn leases<'g>(grants: impl IntoIterator<Item = &'g Grant>) -> Result<String, StoreError> {
    #[derive(serde::Serialize)]
    struct Asked<'g> {
        name: &'g str,
        claim: String,
        lease: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
    }
    let lease = |Grant { name, claim, lease, mode, .. }: &'g Grant| {
        let (claim, lease) = (claim.to_string(), millis(*lease));
        Ok(Asked { name: name.as_str(), claim, lease, mode: mode_column(*mode)? })
    };
    let leases = grants.into_iter().map(lease).collect::<Result<Vec<_>, StoreError>>()?;
    serde_json::to_string(&leases).map_err(StoreError::failed)
}

/// Name, claim, lease in ms, and label.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn claims(claims: &[Claim]) -> String {
    array(claims.iter().map(|Claim { id, name, lease, holder, .. }| {
        let (claim, lease) = (id.to_string(), millis(*lease));
        json!({ "name": name.as_str(), "claim": claim, "lease": lease, "label": holder.label })
    }))
}

/// One object for a [`Member`](crate::lane::Member) that acquires: name, claim, lease in ms, label, host, pid, and how
/// many `more` tokens to reserve.
#[cfg(feature = "_server")]
pub(crate) fn acquisition(Claim { id, name, lease, holder, reserve, .. }: &Claim) -> String {
    let (claim, lease) = (id.to_string(), millis(*lease));
    let HolderInfo { label, host, pid } = &**holder;
    json!({
        "name": name.as_str(), "claim": claim, "lease": lease,
        "label": label, "host": host, "pid": pid, "more": reserve,
    })
    .to_string()
}

/// One object for a member that releases: name and claim.
#[cfg(feature = "_server")]
pub(crate) fn release(Grant { name, claim, .. }: &Grant) -> String {
    json!({ "name": name.as_str(), "claim": claim.to_string() }).to_string()
}

/// Prefix and name.
pub(crate) fn keys(keys: Vec<(String, String)>) -> String {
    array(keys.into_iter().map(|(prefix, name)| json!({ "prefix": prefix, "name": name })))
}

/// Name.
#[cfg(feature = "_server")]
pub(crate) fn names(names: &[&Name]) -> String {
    array(names.iter().map(|name| json!({ "name": name.as_str() })))
}

/// Name, whether or not it is one.
#[cfg(feature = "mysql")]
pub(crate) fn texts(names: &[String]) -> String {
    array(names.iter().map(|name| json!({ "name": name })))
}

/// Name, the version that was read, until when it may be written, and the columns from `token` on.
#[cfg(feature = "_server")]
pub(crate) fn swaps<'s>(swaps: impl IntoIterator<Item = &'s Swap<'s>>) -> Result<String, StoreError> {
    #[derive(serde::Serialize)]
    struct Written<'s> {
        name: &'s str,
        was: i64,
        latest: i64,
        #[serde(flatten)]
        row: &'s Row,
    }
    let written = |Swap { name, from, to }: &'s Swap<'s>| Written {
        name: name.as_str(),
        was: from.row.as_ref().map_or(0, |row| row.version),
        latest: from.until,
        row: &to.row,
    };
    serde_json::to_string(&swaps.into_iter().map(written).collect::<Vec<_>>()).map_err(StoreError::failed)
}

fn array(objects: impl Iterator<Item = serde_json::Value>) -> String {
    serde_json::Value::Array(objects.collect()).to_string()
}

#[cfg(all(test, feature = "_server"))]
mod tests {
    use super::*;
    use std::{sync::Arc, time::Duration};
    use tenure_core::{ClaimId, Mode};

    #[test]
    fn acquisition_is_encoded_as_an_object() {
        let mut claim = Claim {
            id: ClaimId::new(),
            name: Name::new("b\"").unwrap(),
            mode: Mode::Exclusive,
            lease: Duration::from_secs(5),
            waits: false,
            reserve: 3,
            holder: Arc::new(HolderInfo { label: Some("it's".to_owned()), host: "h".to_owned(), pid: 7 }),
        };
        let object = |claim: &Claim| acquisition(claim).parse::<serde_json::Value>().unwrap();
        let (id, lease) = (claim.id.to_string(), 5_000);
        let expected = json!({
            "name": "b\"", "claim": id, "lease": lease, "label": "it's", "host": "h", "pid": 7, "more": 3,
        });
        assert_eq!(object(&claim), expected);
        claim.holder = Arc::new(HolderInfo { label: None, host: "h".to_owned(), pid: 7 });
        assert_eq!(object(&claim)["label"], serde_json::Value::Null);
    }
}
