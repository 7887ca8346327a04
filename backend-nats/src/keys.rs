//! The subject of a key.

use tenure_core::record::{escape, unescape};

/// The subjects of a bucket's keys below a prefix. Each key is one token of a subject: `.` divides tokens.
#[derive(Clone, Debug)]
pub(crate) struct Keys(String);

impl Keys {
    pub(crate) fn below(bucket: &str, prefix: &str) -> Self {
        Self(format!("$KV.{bucket}.{}.", escape(prefix)))
    }

    pub(crate) fn subject(&self, key: &str) -> String {
        format!("{}{}", self.0, escape(key))
    }

    /// The subject of probes. No key has it.
    pub(crate) fn probe(&self) -> String {
        self.0.trim_end_matches('.').to_owned()
    }

    /// The subjects of all keys.
    pub(crate) fn all(&self) -> String {
        format!("{}*", self.0)
    }

    /// The key with this subject; `None` if it is none of these keys.
    pub(crate) fn key(&self, subject: &str) -> Option<String> {
        unescape(subject.strip_prefix(&self.0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn subject_is_readable() {
        let keys = Keys::below("locks", "app.v1");
        assert_eq!(keys.subject("lock/orders/é *>"), "$KV.locks.app=2Ev1.lock/orders/=C3=A9=20=2A=3E");
        assert_eq!(keys.all(), "$KV.locks.app=2Ev1.*");
        assert_eq!(keys.key("$KV.locks.other.lock/a"), None);
        assert_eq!(keys.key("$KV.locks.app=2Ev1.lock/=C"), None);
    }

    proptest! {
        #[test]
        fn key_is_one_valid_token_and_read_back(key in "\\PC{1,80}") {
            let keys = Keys::below("locks", "tenure");
            let subject = keys.subject(&key);
            prop_assert_eq!(subject.split('.').count(), 4);
            let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_/=".contains(c);
            prop_assert!(subject.rsplit('.').next().unwrap().chars().all(is_valid));
            prop_assert_eq!(keys.key(&subject), Some(key));
        }
    }
}
