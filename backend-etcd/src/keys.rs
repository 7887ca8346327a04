//! Names as keys.

use tenure_core::{ClaimId, Name};

/// The component above all latches: no name is encoded like this.
const LATCHES: &str = "%latches";
/// The component above the claims that must get no key any more.
const SPENT: &str = "%spent";

/// The keys below one prefix. It ends with a slash, or is empty.
///
/// A lock's contenders have the keys `PREFIX/NAME/CLAIM`, as in etcd's own recipe, where the last component is a lease.
/// Slashes in a name are encoded, so that a lock `a` never takes the contenders of `a/b` for its own.
#[derive(Clone, Debug)]
pub(crate) struct Keys(String);

impl Keys {
    pub(crate) fn below(path: &str, prefix: &str) -> Self {
        let parts = [path, prefix].into_iter().filter(|part| !part.is_empty());
        Self(parts.flat_map(|part| [part, "/"]).collect())
    }

    /// The prefix of the keys of a lock's contenders.
    pub(crate) fn lock(&self, name: &Name) -> Vec<u8> {
        format!("{}{}/", self.0, encode(name.as_str())).into_bytes()
    }

    pub(crate) fn contender(&self, name: &Name, claim: ClaimId) -> Vec<u8> {
        format!("{}{}/{}", self.0, encode(name.as_str()), claim.as_uuid().simple()).into_bytes()
    }

    /// The prefix of the keys of all locks whose names begin with `names`.
    pub(crate) fn locks(&self, names: &str) -> Vec<u8> {
        format!("{}{}", self.0, encode(names)).into_bytes()
    }

    /// Marks that the claim must get no key any more: a request that makes one may still be on its way.
    pub(crate) fn spent(&self, claim: ClaimId) -> Vec<u8> {
        format!("{}{SPENT}/{}", self.0, claim.as_uuid().simple()).into_bytes()
    }

    /// A key that is never there, among those that this client may read.
    pub(crate) fn none(&self) -> Vec<u8> {
        format!("{}{SPENT}", self.0).into_bytes()
    }

    /// Whether a key marks a spent claim.
    pub(crate) fn is_spent(&self, key: &[u8]) -> bool {
        key.starts_with(format!("{}{SPENT}/", self.0).as_bytes())
    }

    /// The latch's own key. Its parties' keys begin with it and a slash.
    pub(crate) fn latch(&self, name: &Name) -> String {
        format!("{}{LATCHES}/{}", self.0, encode(name.as_str()))
    }

    pub(crate) fn party(latch: &str, party: &Name) -> String {
        format!("{latch}/{}", encode(party.as_str()))
    }

    /// The lock whose contender has this key; `None` for any other key.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<Name> {
        let rest = key.strip_prefix(self.0.as_bytes())?;
        let name = &rest[..rest.iter().position(|byte| *byte == b'/')?];
        Name::new(decode(std::str::from_utf8(name).ok()?)?).ok()
    }
}

/// The claim in a contender's key; `None` if another program has made it.
pub(crate) fn claim_of(key: &[u8]) -> Option<ClaimId> {
    let (_, claim) = std::str::from_utf8(key).ok()?.rsplit_once('/')?;
    let id: ClaimId = claim.parse().ok()?;
    (id.as_uuid().simple().to_string() == claim).then_some(id)
}

/// Encodes a name as one component. Only slashes and percent signs change.
pub(crate) fn encode(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// Decodes a component; `None` if no name is encoded like this.
fn decode(component: &str) -> Option<String> {
    let name = component.replace("%2F", "/").replace("%25", "%");
    (encode(&name) == component).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn keys_are_those_on_the_page() {
        let keys = Keys::below("", "tenure");
        let claim = ClaimId::new();
        let of = |text: &str| String::from_utf8(keys.contender(&name(text), claim)).unwrap();
        let id = claim.as_uuid().simple();
        assert_eq!(of("orders"), format!("tenure/orders/{id}"));
        assert_eq!(of("orders/42"), format!("tenure/orders%2F42/{id}"));
        assert_eq!(keys.latch(&name("a/b")), "tenure/%latches/a%2Fb");
        assert_eq!(Keys::below("app", "x").latch(&name("a")), "app/x/%latches/a");
        assert_eq!(Keys::below("", "").lock(&name("a")), b"a/");
        assert_eq!(claim_of(of("a").as_bytes()), Some(claim));
    }

    #[test]
    fn foreign_keys_are_no_claims() {
        for key in
            ["tenure/a/694d5765fc71500b", "tenure/a/", "a", "tenure/a/27D6A1AC9C3B4A1E8D5C9D1F6D7B1C11"]
        {
            assert_eq!(claim_of(key.as_bytes()), None, "{key}");
        }
        let keys = Keys::below("", "tenure");
        for key in ["tenure/%latches/a", "tenure/a%2f/1", "other/a/1", "tenure/a"] {
            assert_eq!(keys.name_of(key.as_bytes()), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn name_is_read_as_written(text in "\\PC{1,40}|[./%25F]{1,8}", prefix in "[a-z]{0,3}") {
            let (keys, claim) = (Keys::below("", &prefix), ClaimId::new());
            let key = keys.contender(&name(&text), claim);
            prop_assert_eq!(keys.name_of(&key), Some(name(&text)));
            prop_assert_eq!(claim_of(&key), Some(claim));
            prop_assert!(key.starts_with(&keys.lock(&name(&text))));
        }

        /// Otherwise two keys would be one lock.
        #[test]
        fn each_name_has_one_component(component in "([%./25F]|%2[5F]|.){0,12}") {
            if let Some(name) = decode(&component) {
                prop_assert_eq!(encode(&name), component);
            }
        }

        #[test]
        fn beginning_of_a_name_is_encoded_as_its_beginning(text in "[a/%]{1,12}", at in 0..12_usize) {
            let begin = &text[..at.min(text.len())];
            prop_assert!(encode(&text).starts_with(&encode(begin)));
        }
    }
}
