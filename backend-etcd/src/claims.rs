//! The claims of a session, and their keys.

use crate::{
    link::{Answer, Silence},
    session::{AGAIN, Entry, Live},
};
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse};
use std::sync::Arc;
use tenure_core::{Claim, ClaimId, Grant, LossCause, StoreError, Token};
use tokio::time::sleep;

/// The outcome of a removal.
#[derive(Debug)]
pub(crate) enum Removed {
    /// The key was there, and was deleted.
    Deleted,
    /// Another client had deleted it.
    Missing,
    /// Another request of this client has removed it meanwhile.
    Earlier,
    /// The session has ended, and the key goes with it.
    SessionOver,
    Failed(StoreError),
}

impl Live {
    /// Registers a claim before its key is requested, and returns its turn; as an error while its removal is on its way.
    pub(crate) fn register(&self, claim: ClaimId, key: &[u8]) -> Result<Turn, Turn> {
        let mut state = self.state();
        let entry = state.entry(claim).or_insert_with(|| Entry {
            key: key.to_vec(),
            turn: Arc::default(),
            held: None,
            unwanted: false,
            in_doubt: false,
        });
        let turn = Arc::clone(&entry.turn);
        if entry.unwanted { Err(turn) } else { Ok(turn) }
    }

    /// The turn of a claim that is wanted.
    pub(crate) fn turn(&self, claim: ClaimId) -> Option<Turn> {
        let state = self.state();
        state.get(&claim).filter(|entry| !entry.unwanted).map(|entry| Arc::clone(&entry.turn))
    }

    /// Whether the claim's removal was not requested.
    pub(crate) fn wants(&self, claim: ClaimId) -> bool {
        self.state().get(&claim).is_some_and(|entry| !entry.unwanted)
    }

    /// Notes that a copy of a request that makes these claims' keys may still arrive.
    pub(crate) fn doubt(&self, claims: impl IntoIterator<Item = ClaimId>) {
        let mut state = self.state();
        for claim in claims {
            if let Some(entry) = state.get_mut(&claim) {
                entry.in_doubt = true;
            }
        }
    }

    /// Forgets claims that got no keys. Those that may still get one are removed in the background.
    pub(crate) fn leave(self: &Arc<Self>, claims: &[ClaimId]) {
        let mut state = self.state();
        for claim in claims {
            let idle = state.get_mut(claim).filter(|entry| entry.held.is_none() && !entry.unwanted);
            let Some(entry) = idle else { continue };
            if entry.in_doubt {
                entry.unwanted = true;
                let (live, claim) = (Arc::clone(self), *claim);
                self.background.spawn(async move { live.remove(claim).await });
            } else {
                state.remove(claim);
            }
        }
    }

    /// Grants the claim, whose key is there; `None` if it was withdrawn meanwhile.
    pub(crate) fn grant(&self, claim: &Claim, token: Token) -> Option<Result<Grant, LossCause>> {
        let mut state = self.state();
        let entry = state.get_mut(&claim.id).filter(|entry| !entry.unwanted)?;
        let liveness = match &entry.held {
            Some((liveness, known)) if *known == token => liveness.clone(),
            earlier => {
                // Another client has deleted that key, and a repeated request has made this one.
                if let Some((liveness, _)) = earlier {
                    liveness.end(LossCause::Forced);
                }
                let liveness = self.session.liveness();
                entry.held = Some((liveness.clone(), token));
                liveness
            }
        };
        Some(match liveness.loss() {
            None => Ok(Grant::in_session(claim, token, liveness)),
            Some(cause) => Err(cause),
        })
    }

    /// Deletes the claim's key, in the background: no lease would end it soon. `None` if the claim is not known.
    pub(crate) async fn remove(self: &Arc<Self>, claim: ClaimId) -> Option<Removed> {
        let (key, turn) = {
            let mut state = self.state();
            let entry = state.get_mut(&claim)?;
            entry.unwanted = true;
            (entry.key.clone(), Arc::clone(&entry.turn))
        };
        let live = Arc::clone(self);
        let removing = self.background.spawn(async move {
            // A request that makes the key comes to its end first.
            let _turn = turn.lock().await;
            let Some(in_doubt) = live.state().get(&claim).map(|entry| entry.in_doubt) else {
                return Removed::Earlier;
            };
            let removed = live.delete(&key, in_doubt.then(|| live.keys.spent(claim))).await;
            let held = live.state().remove(&claim).and_then(|entry| entry.held);
            if let (Removed::Missing, Some((liveness, _))) = (&removed, held) {
                liveness.end(LossCause::Forced);
            }
            removed
        });
        Some(removing.await.unwrap_or(Removed::SessionOver))
    }

    /// Deletes a key, asking until there is an answer or the session has ended. In the same step, it makes the mark that
    /// its claim is spent, if any.
    pub(crate) async fn delete(&self, key: &[u8], spent: Option<Vec<u8>>) -> Removed {
        let mut mark =
            spent.map(|spent| TxnOp::put(spent, "", Some(PutOptions::new().with_lease(self.lease))));
        let mut asked_before = false;
        loop {
            let all: Vec<_> = [TxnOp::delete(key, None)].into_iter().chain(mark.clone()).collect();
            match self.unless_over(self.commit(Txn::new().and_then(all))).await {
                None | Some(Err(Silence::SessionOver)) => return Removed::SessionOver,
                Some(Ok(Answer { value, resent })) => {
                    let deleted = value.op_responses().iter().any(
                        |answer| matches!(answer, TxnOpResponse::Delete(answer) if answer.deleted() > 0),
                    );
                    // An earlier request may have deleted it.
                    return if deleted || resent || asked_before {
                        Removed::Deleted
                    } else {
                        Removed::Missing
                    };
                }
                Some(Err(Silence::Failed(error))) if error.is_unavailable() => asked_before = true,
                // A full database takes deletions, but no mark.
                Some(Err(Silence::Failed(_))) if mark.take().is_some() => {}
                Some(Err(Silence::Failed(error))) => return Removed::Failed(error),
            }
            sleep(AGAIN).await;
        }
    }

    /// Deletes a key that was made at this revision.
    pub(crate) async fn delete_unless_new(&self, key: &[u8], created: i64) -> Result<(), Silence> {
        let same = Compare::create_revision(key, CompareOp::Equal, created);
        self.commit(Txn::new().when([same]).and_then([TxnOp::delete(key, None)])).await.map(drop)
    }
}

/// See [`Entry`].
pub(crate) type Turn = Arc<tokio::sync::Mutex<()>>;
