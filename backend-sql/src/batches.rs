//! The parameter of statements about several rows: a JSON array of objects.

use crate::values::millis;
#[cfg(feature = "_server")]
use crate::{lease_table::Swap, record_rows::Row};
use serde_json::json;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::Claim;
use tenure_core::Grant;
#[cfg(feature = "_server")]
use tenure_core::{Name, StoreError};

/// Name, claim and lease in ms.
pub(crate) fn leases<'g>(grants: impl IntoIterator<Item = &'g Grant>) -> String {
    let lease = |Grant { name, claim, lease, .. }: &Grant| json!({ "name": name.as_str(), "claim": claim.to_string(), "lease": millis(*lease) });
    array(grants.into_iter().map(lease))
}

/// Name, claim, lease in ms, and label.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn claims(claims: &[Claim]) -> String {
    array(claims.iter().map(|Claim { id, name, lease, holder, .. }| {
        let (claim, lease) = (id.to_string(), millis(*lease));
        json!({ "name": name.as_str(), "claim": claim, "lease": lease, "label": holder.label })
    }))
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
