//! Which server answers at each address: a server that is listed twice would have two votes.

use std::sync::{Arc, Mutex, PoisonError};
use tenure_core::StoreError;

/// The servers behind the addresses of one list, as far as known.
///
/// A server has a new `run_id` after each start, and an address may later lead to another server. So a known identity
/// is valid for one connection.
#[derive(Default)]
pub(crate) struct Identities(Mutex<Vec<KnownServer>>);

struct KnownServer {
    address: Arc<str>,
    connection: u64,
    /// `None` if the server does not say.
    run_id: Option<String>,
}

impl Identities {
    fn known(&self) -> std::sync::MutexGuard<'_, Vec<KnownServer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server on this connection to the address is known.
    pub(crate) fn knows(&self, address: &str, connection: u64) -> bool {
        self.known().iter().any(|known| &*known.address == address && known.connection == connection)
    }

    /// Records the identity of the server on a connection to an address.
    ///
    /// # Errors
    ///
    /// If another address already leads to it.
    pub(crate) fn learn(
        &self,
        address: &Arc<str>,
        connection: u64,
        run_id: Option<String>,
    ) -> Result<(), StoreError> {
        let mut all = self.known();
        all.retain(|known| known.address != *address);
        if let Some(same) = all.iter().find(|known| run_id.is_some() && known.run_id == run_id) {
            return Err(StoreError::failed(format!(
                "{} and {address} are the same server, which has only one vote; replace one of them with \
                 another server",
                same.address
            )));
        }
        all.push(KnownServer { address: Arc::clone(address), connection, run_id });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_under_two_addresses_is_refused_until_it_moves() {
        let (identities, [a, b]) = (Identities::default(), ["a:1", "b:1"].map(Arc::<str>::from));
        let is = |name: &str| Some(name.to_owned());
        identities.learn(&a, 1, is("one")).unwrap();
        assert!(identities.knows("a:1", 1) && !identities.knows("a:1", 2) && !identities.knows("b:1", 1));
        let error = identities.learn(&b, 1, is("one")).unwrap_err().to_string();
        assert!(error.contains("a:1 and b:1 are the same server"), "{error}");
        assert!(!identities.knows("b:1", 1));
        identities.learn(&b, 2, is("two")).unwrap();
        // It has started anew, or the address leads elsewhere.
        identities.learn(&a, 2, is("three")).unwrap();
        identities.learn(&b, 3, is("one")).unwrap();
        assert!(identities.knows("a:1", 2) && identities.knows("b:1", 3));
        // Servers that do not say are taken at their word.
        identities.learn(&a, 3, None).unwrap();
        identities.learn(&b, 4, None).unwrap();
        assert!(identities.knows("a:1", 3) && identities.knows("b:1", 4));
    }
}
