//! The holders of a name, or of all names with a prefix; and the waiters for a name.

use super::Server;
use crate::{
    connection::{errors::no_lock, link::Answer},
    requests::{keys, replies},
};
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{Capability, Holder, Name, StoreError, Waiter};

/// How many locks one request looks at.
const LOOK_BATCH: usize = 250;

impl Server {
    /// Ends every grant of a name.
    pub(crate) async fn force(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let script = &self.scripts.force;
        let (mut call, lock) = self.call(script, name);
        call.arg(self.options.remember.as_secs());
        let Answer { value, resent, .. } = self.run(script, &call, &lock).await?;
        let holders = self.holders_in(&value, std::slice::from_ref(name))?;
        if holders.is_empty() && resent {
            // The first request may have ended some.
            return Err(StoreError::unavailable("the connection broke while a lock was released by force"));
        }
        Ok(holders)
    }

    /// The holders of this name. A key of another type is an error, as it is for an attempt.
    pub(crate) async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let (names, answer) = (std::slice::from_ref(name), self.look_at(std::slice::from_ref(name)).await?);
        match replies::not_locks(&answer, names)[..] {
            [] => self.holders_in(&answer, names),
            _ => Err(StoreError::failed(no_lock(&self.lock_key(name)))),
        }
    }

    /// The waiters for this name, in order.
    pub(crate) async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let Some(script) = &self.scripts.waiting else {
            return Err(StoreError::unsupported(Capability::Waiting));
        };
        let (call, lock) = self.call(script, name);
        replies::waiting(&self.run(script, &call, &lock).await?.value, name)
    }

    /// The holders of these names. Leaves out free names, and keys of another type.
    pub(crate) async fn look(&self, names: &[Name]) -> Result<Vec<Holder>, StoreError> {
        self.holders_in(&self.look_at(names).await?, names)
    }

    /// The holders of these names in an answer. A name whose key another program damaged has an unknown holder.
    fn holders_in(&self, answer: &Value, names: &[Name]) -> Result<Vec<Holder>, StoreError> {
        replies::holders(answer, names, |name| {
            let (server, key) = (self.link.dial().server_name().address, self.lock_key(name));
            let error = format!("another program wrote to the key {key:?}, or to tenure's record of it");
            tracing::warn!(lock.name = %name, %server, error, "cannot tell who holds a name");
        })
    }

    async fn look_at(&self, names: &[Name]) -> Result<Value, StoreError> {
        let script = &self.scripts.look;
        let mut call = script.call(names.len() * 2, names.len() * 128);
        let mut about = String::new();
        for name in names {
            about = self.lock_key(name);
            call.arg(&about).arg(keys::record(&about));
        }
        Ok(self.run(script, &call, &about).await?.value)
    }

    /// The holders of all names that begin with `prefix`, sorted by name.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let mut holders = Vec::new();
        for names in self.together(&self.scan(prefix).await?) {
            for names in names.chunks(LOOK_BATCH) {
                holders.extend(self.look(names).await?);
            }
        }
        if self.options.prefix.is_empty() {
            // Then any key may be here. A lock is one that tenure knows, or one that expires.
            holders.retain(|holder| holder.claim.is_some() || holder.left.is_some());
        }
        Ok(holders)
    }

    /// Groups the names that one request can be about.
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

    /// The names that begin with `prefix` and have a key, sorted.
    async fn scan(&self, prefix: &str) -> Result<Vec<Name>, StoreError> {
        let begin = [&self.options.prefix, prefix].concat();
        let pattern = glob(&begin);
        let (mut names, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            let (next, keys) = replies::page(&self.link.ask(&scan).await?.value)?;
            names.extend(keys.iter().filter_map(|key| keys::name_of(&self.options.prefix, key)));
            if next == 0 {
                return Ok(names.into_iter().collect());
            }
            cursor = next;
        }
    }
}

/// A pattern for the keys that begin with `begin`.
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
    fn prefix_is_matched_literally() {
        assert_eq!(glob("tenure:a*[b]?\\"), "tenure:a\\*\\[b\\]\\?\\\\*");
        assert_eq!(glob(""), "*");
    }
}
