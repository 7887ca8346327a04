//! Which server answers at each address: a server that is listed twice would have two votes.

use std::sync::{Arc, Mutex, PoisonError};
use tenure_core::StoreError;

/// The servers behind the addresses of one list, each by its `run_id`, as the last answer from there told.
///
/// A server has a new `run_id` after each start, and an address may later lead to another server. So each answer counts
/// for the connection that brought it.
#[derive(Default)]
pub(crate) struct Identities(Mutex<Vec<(Arc<str>, String)>>);

impl Identities {
    /// Records which server has just answered at an address. `None` if it does not say.
    ///
    /// # Errors
    ///
    /// If another address already leads to it.
    pub(crate) fn learn(&self, address: &Arc<str>, run_id: Option<&str>) -> Result<(), StoreError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.iter().any(|(at, known)| at == address && Some(&**known) == run_id) {
            return Ok(());
        }
        all.retain(|(at, _)| at != address);
        let Some(run_id) = run_id else { return Ok(()) };
        if let Some((same, _)) = all.iter().find(|(_, known)| known == run_id) {
            return Err(StoreError::failed(format!(
                "{same} and {address} are the same server, which has only one vote; replace one of them with another \
                 server"
            )));
        }
        all.push((Arc::clone(address), run_id.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_under_two_addresses_is_refused_until_it_moves() {
        let (identities, [a, b]) = (Identities::default(), ["a:1", "b:1"].map(Arc::<str>::from));
        identities.learn(&a, Some("one")).unwrap();
        let error = identities.learn(&b, Some("one")).unwrap_err().to_string();
        assert!(error.contains("a:1 and b:1 are the same server"), "{error}");
        identities.learn(&b, Some("two")).unwrap();
        // It has started anew, or the address leads elsewhere.
        identities.learn(&a, Some("three")).unwrap();
        identities.learn(&b, Some("one")).unwrap();
        identities.learn(&b, Some("three")).unwrap_err();
        // Its old identity is not known any more.
        identities.learn(&a, Some("one")).unwrap();
        // Servers that do not say are taken at their word.
        identities.learn(&a, None).unwrap();
        identities.learn(&b, None).unwrap();
    }
}
