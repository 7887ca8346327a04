//! All locks under a prefix.

use crate::{keys, replies, store::Store};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{Holder, Name, StoreError};

/// How many locks one request looks at.
const LOOK_BATCH: usize = 250;

impl Store {
    /// Who holds names that begin so, in order.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let mut holders = Vec::new();
        for names in self.together(&self.scan(prefix).await?) {
            for names in names.chunks(LOOK_BATCH) {
                holders.extend(self.look(names).await?);
            }
        }
        if self.options.prefix.is_empty() {
            // Any key may be here then; a lock is one that tenure knows, or that ends by itself.
            holders.retain(|holder| holder.claim.is_some() || holder.left.is_some());
        }
        Ok(holders)
    }

    /// The names, by what can be asked about together.
    fn together(&self, names: &[Name]) -> Vec<Vec<Name>> {
        if !self.is_in_cluster() {
            return vec![names.to_vec()];
        }
        let mut slots: BTreeMap<u16, Vec<Name>> = BTreeMap::new();
        for name in names {
            slots.entry(keys::slot_of(&self.lock_key(name))).or_default().push(name.clone());
        }
        slots.into_values().collect()
    }

    /// The names that begin so whose keys are there, in order.
    async fn scan(&self, prefix: &str) -> Result<Vec<Name>, StoreError> {
        let begin = [&self.options.prefix, prefix].concat();
        let pattern = glob(&begin);
        let (mut names, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let (next, keys) = replies::page(&self.server.ask(&scan).await?.value)?;
            names.extend(keys.iter().filter_map(|key| keys::name_of(&self.options.prefix, key)));
            if next == 0 {
                return Ok(names.into_iter().collect());
            }
            cursor = next;
        }
    }
}

/// A pattern for the keys that begin so.
fn glob(begin: &str) -> String {
    let mut pattern = String::with_capacity(begin.len() + 8);
    for c in begin.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(glob("tenure:a*[b]?\\"), "tenure:a\\*\\[b\\]\\?\\\\*");
        assert_eq!(glob(""), "*");
    }
}
