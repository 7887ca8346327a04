//! Downgrades and upgrades, each in its place: the value of the claim's key changes, and the key stays where it is.

use crate::{
    contender::{answer_revision, gets},
    link::Silence,
    queue::{Place, Queue},
    session::{Live, unexpected},
};
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use std::sync::Arc;
use tenure_core::{ClaimId, Conversion, LossCause, Mode, StoreError};

impl Live {
    /// Changes the mode in which the claim holds the lock whose contenders' keys begin with `lock`. It runs to its end even
    /// if its caller has gone.
    pub(crate) async fn convert(
        self: &Arc<Self>,
        lock: Vec<u8>,
        key: Vec<u8>,
        claim: ClaimId,
        to: Mode,
    ) -> Result<Conversion, StoreError> {
        let Some(turn) = self.turn(claim) else { return Ok(Conversion::Lost(LossCause::Forced)) };
        let live = Arc::clone(self);
        let converting = self.background.spawn(async move {
            let _turn = turn.lock_owned().await;
            live.unless_over(live.change(&lock, &key, to)).await
        });
        match converting.await {
            Ok(Some(Ok(answer))) => Ok(answer),
            Ok(Some(Err(Silence::Failed(error)))) => Err(error),
            Ok(Some(Err(Silence::SessionOver)) | None) | Err(_) => {
                Ok(Conversion::Lost(LossCause::SessionEnded))
            }
        }
    }

    async fn change(&self, lock: &[u8], key: &[u8], to: Mode) -> Result<Conversion, Silence> {
        loop {
            let all = TxnOp::get(lock, Some(GetOptions::new().with_prefix()));
            let answer = self.commit(Txn::new().and_then([all])).await?.value;
            let revision = answer_revision(&answer)?;
            let found = gets(&answer);
            let found = found.first().ok_or_else(unexpected)?;
            let queue = Queue::of(found.kvs().iter().map(Place::from).collect());
            let Some(own) = queue.find(key).filter(|own| own.lease == self.lease) else {
                return Ok(Conversion::Lost(LossCause::Forced));
            };
            if own.mode == to {
                return Ok(Conversion::Converted);
            }
            let Some(card) = own.card.as_ref().filter(|_| !matches!(own.mode, Mode::Permit { .. })) else {
                let error = StoreError::failed("permits cannot be converted");
                return Err(Silence::Failed(error));
            };
            // A copy of an earlier change that comes late finds another revision.
            let mut unchanged = vec![Compare::mod_revision(key, CompareOp::Equal, own.modified)];
            if to == Mode::Exclusive {
                if queue.holders().len() > 1 {
                    return Ok(Conversion::Refused);
                }
                // A reader that came meanwhile holds too.
                unchanged.push(Compare::mod_revision(lock, CompareOp::Less, revision + 1).with_prefix());
            }
            let options = PutOptions::new().with_lease(self.lease);
            let put = TxnOp::put(key, card.in_mode(to).bytes(), Some(options));
            if self.commit(Txn::new().when(unchanged).and_then([put])).await?.value.succeeded() {
                return Ok(Conversion::Converted);
            }
        }
    }
}
