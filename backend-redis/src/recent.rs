//! Notes about claims, kept while a request of the claim may still arrive.

use crate::timing::LONGEST_STRAGGLER;
use std::collections::{BTreeSet, HashMap};
use tenure_core::{ClaimId, Moment};

/// A value for each claim, forgotten [`LONGEST_STRAGGLER`] after it was last [touched](Self::touch).
///
/// In an outage every request leaves a note behind. They are ordered by age, so forgetting the oldest costs no search.
pub(crate) struct Recent<V> {
    values: HashMap<ClaimId, (Moment, V)>,
    by_age: BTreeSet<(Moment, ClaimId)>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { values: HashMap::new(), by_age: BTreeSet::new() }
    }
}

impl<V: Default> Recent<V> {
    /// Returns the value of a claim, and keeps it from now on. Forgets values that are too old.
    pub(crate) fn touch(&mut self, claim: ClaimId, now: Moment) -> &mut V {
        while let Some((oldest, forgotten)) = self.by_age.first().copied()
            && now.since(oldest) >= LONGEST_STRAGGLER
        {
            self.remove(forgotten);
        }
        let (touched, value) = self.values.entry(claim).or_insert_with(|| (now, V::default()));
        self.by_age.remove(&(*touched, claim));
        *touched = now;
        self.by_age.insert((now, claim));
        value
    }

    pub(crate) fn get_mut(&mut self, claim: ClaimId) -> Option<&mut V> {
        self.values.get_mut(&claim).map(|(_, value)| value)
    }

    pub(crate) fn contains(&self, claim: ClaimId) -> bool {
        self.values.contains_key(&claim)
    }

    pub(crate) fn remove(&mut self, claim: ClaimId) {
        if let Some((touched, _)) = self.values.remove(&claim) {
            self.by_age.remove(&(touched, claim));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn untouched_value_is_forgotten() {
        let (mut recent, old, touched) = (Recent::<u8>::default(), ClaimId::new(), ClaimId::new());
        for claim in [old, touched] {
            *recent.touch(claim, Moment::now()) += 1;
        }
        tokio::time::sleep(LONGEST_STRAGGLER / 2).await;
        assert_eq!(*recent.touch(touched, Moment::now()), 1);
        tokio::time::sleep(LONGEST_STRAGGLER / 2).await;
        recent.touch(ClaimId::new(), Moment::now());
        assert!(!recent.contains(old) && recent.contains(touched));
        recent.remove(touched);
        assert!(recent.get_mut(touched).is_none());
        assert_eq!((recent.values.len(), recent.by_age.len()), (1, 1));
    }
}
