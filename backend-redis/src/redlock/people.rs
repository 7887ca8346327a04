//! The holders of names, as a majority sees them.

use super::{quorum::Quorum, voter::Voter, voters::Voters};
use crate::connection::errors::Failure;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tenure_core::{ClaimId, Holder, Name, StoreError, Token};

/// How long listings wait for a server: longer than locks do, because a list may be long.
const PATIENCE: Duration = Duration::from_secs(5);

/// The claim that holds a key; foreign clients cannot be told apart.
type Whose = Option<ClaimId>;

/// The answers of the servers.
struct View {
    /// For each claim on a name, each server's holder.
    seen: BTreeMap<(Name, Whose), Vec<Holder>>,
    answered: usize,
    /// Why others did not answer.
    silent: Vec<Failure>,
}

impl View {
    /// Fails if a claim that a minority has would be a majority's together with the silent servers: it may hold the name.
    fn decided(self, quorum: Quorum) -> Result<Self, StoreError> {
        let silent = quorum.servers - self.answered;
        let in_doubt = self
            .seen
            .iter()
            .find(|(_, same)| !quorum.is_met(same.len()) && quorum.is_met(same.len() + silent));
        match in_doubt {
            Some(((name, _), _)) => Err(quorum.undecided(&name.clone(), self.silent)),
            None => Ok(self),
        }
    }
}

impl Voters {
    /// The holders of a name on a majority. Fails if it depends on silent servers whether a claim holds it.
    pub(crate) async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let view = self.view(|voter| {
            let name = name.clone();
            async move { voter.server.holders(&name).await }
        });
        Ok(self.held(view.await?.decided(self.quorum)?))
    }

    /// The holders of all names that begin with `prefix` on a majority, sorted by name. Fails as for [`holders`](Self::holders).
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let prefix: Arc<str> = prefix.into();
        let view = self.view(|voter| {
            let prefix = Arc::clone(&prefix);
            async move { voter.server.list(&prefix).await }
        });
        Ok(self.held(view.await?.decided(self.quorum)?))
    }

    /// Ends every grant of a name on every server, and returns its holders on a majority.
    pub(crate) async fn force(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let view = self.view(|voter| {
            let name = name.clone();
            async move { voter.server.force(&name).await }
        });
        // The keys on silent servers are not enough to hold it any more.
        Ok(self.held(view.await?))
    }

    /// The answers of at least a majority.
    async fn view<F>(&self, look: impl Fn(Arc<Voter>) -> F) -> Result<View, StoreError>
    where
        F: Future<Output = Result<Vec<Holder>, StoreError>> + Send + 'static,
    {
        let mut answers = self.each(PATIENCE, look);
        let (mut views, mut silent) = (Vec::new(), Vec::new());
        while let Some((_, answer)) = answers.next().await {
            match answer {
                Ok(holders) => views.push(holders),
                Err(error) => silent.push(error.into()),
            }
        }
        if !self.quorum.is_met(views.len()) {
            return Err(self.quorum.too_few(silent));
        }
        let answered = views.len();
        let mut seen: BTreeMap<(Name, Whose), Vec<Holder>> = BTreeMap::new();
        for holder in views.into_iter().flatten() {
            seen.entry((holder.name.clone(), holder.claim)).or_default().push(holder);
        }
        Ok(View { seen, answered, silent })
    }

    /// The holders on a majority of the servers in a view.
    fn held(&self, view: View) -> Vec<Holder> {
        let held = view.seen.into_values().filter(|same| self.quorum.is_met(same.len()));
        held.filter_map(|same| self.merge(same)).collect()
    }

    /// Merges several servers' answers about one holder.
    fn merge(&self, same: Vec<Holder>) -> Option<Holder> {
        // A majority raised the token; a server that answered late may have issued one that was never granted.
        let token = most_frequent(same.iter().map(|holder| holder.token));
        let missing = (same.len()..self.quorum.servers).map(|_| Some(Duration::ZERO));
        // The hold ends when fewer than a majority of the keys are left. Sorted by time left, longest first, that is
        // the end of the key at the majority's rank.
        let mut ends: Vec<Option<Duration>> = same.iter().map(|holder| holder.left).chain(missing).collect();
        ends.sort_unstable_by_key(|left| std::cmp::Reverse(left.unwrap_or(Duration::MAX)));
        let left = ends.get(self.quorum.needed() - 1).copied().flatten();
        let mut holder = same.into_iter().find(|holder| holder.token == token)?;
        holder.left = left;
        Some(holder)
    }
}

fn most_frequent(tokens: impl Iterator<Item = Option<Token>>) -> Option<Token> {
    let mut counts: BTreeMap<Option<Token>, usize> = BTreeMap::new();
    for token in tokens {
        *counts.entry(token).or_default() += 1;
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count).and_then(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_the_most_frequent_or_else_the_smallest() {
        let token = |number| Some(Token::new(number).unwrap());
        assert_eq!(most_frequent([token(9), token(7), token(7)].into_iter()), token(7));
        assert_eq!(most_frequent([token(9), token(7)].into_iter()), token(7));
        assert_eq!(most_frequent([None, None].into_iter()), None);
    }
}
