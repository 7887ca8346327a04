//! Who holds a name, or all names under a prefix.

use super::Server;
use crate::{
    connection::errors::no_lock,
    requests::{keys, replies},
};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{Holder, Name, StoreError};

/// How many locks one request looks at.
const LOOK_BATCH: usize = 250;

impl Server {
    /// Ends any hold of a name.
    pub(crate) async fn force(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let script = &self.scripts.force;
        let (mut call, lock) = self.call(script, name);
        call.arg(self.options.remember.as_secs());
        replies::holders(&self.run(script, &call, &lock).await?.value, std::slice::from_ref(name))
    }

    /// Who holds this name. A key of another type is an error, as it is to those who ask for the lock.
    pub(crate) async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let (names, answer) = (std::slice::from_ref(name), self.look_at(std::slice::from_ref(name)).await?);
        match replies::strangers(&answer, names)[..] {
            [] => replies::holders(&answer, names),
            _ => Err(StoreError::failed(no_lock(&self.lock_key(name)))),
        }
    }

    /// Who holds these names. Those that nobody holds are left out, and those whose keys are of another type.
    pub(crate) async fn look(&self, names: &[Name]) -> Result<Vec<Holder>, StoreError> {
        replies::holders(&self.look_at(names).await?, names)
    }

    async fn look_at(&self, names: &[Name]) -> Result<redis::Value, StoreError> {
        let script = &self.scripts.look;
        let mut call = script.call(names.len() * 2, names.len() * 128);
        let mut about = String::new();
        for name in names {
            about = self.lock_key(name);
            call.arg(&about).arg(keys::record(&about));
        }
        Ok(self.run(script, &call, &about).await?.value)
    }

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
            let (next, keys) = replies::page(&self.lane.ask(&scan).await?.value)?;
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
