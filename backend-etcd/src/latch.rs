//! Latches: one key each without a lease, and one below it for each party that has counted down.

use crate::{contender::gets, keys::Keys, link::Link, session::unexpected};
use etcd_client::{Client, Compare, CompareOp, DeleteOptions, GetOptions, Txn, TxnOp};
use std::num::NonZeroU32;
use tenure_core::{LatchState, LatchStep, Name, StoreError};

impl Link {
    /// Takes one step at the latch `name`.
    pub(crate) async fn latch(
        &self,
        keys: &Keys,
        name: &Name,
        step: &LatchStep,
    ) -> Result<LatchState, StoreError> {
        let latch = keys.latch(name);
        let below = format!("{latch}/");
        let look = [
            TxnOp::get(&*latch, None),
            TxnOp::get(&*below, Some(GetOptions::new().with_prefix().with_count_only())),
        ];
        // In one step, so that no client sees a part of it.
        let txn = match step {
            LatchStep::Look => Txn::new().and_then(look),
            LatchStep::Remove => {
                let parties = TxnOp::delete(&*below, Some(DeleteOptions::new().with_prefix()));
                let all = [TxnOp::delete(&*latch, None), parties].into_iter().chain(look);
                Txn::new().and_then(all.collect::<Vec<_>>())
            }
            LatchStep::CountDown { party, of } => {
                let (of, place) = (of.to_string(), TxnOp::put(Keys::party(&latch, party), "", None));
                let absent = Compare::create_revision(&*latch, CompareOp::Equal, 0);
                // The number of parties is the one of the client that made the latch.
                let agrees = Compare::value(&*latch, CompareOp::Equal, &*of);
                let first = [TxnOp::put(&*latch, &*of, None), place.clone()].into_iter().chain(look.clone());
                let later = TxnOp::txn(Txn::new().when([agrees]).and_then([place]));
                let later = [later].into_iter().chain(look);
                Txn::new()
                    .when([absent])
                    .and_then(first.collect::<Vec<_>>())
                    .or_else(later.collect::<Vec<_>>())
            }
        };
        let ask = |mut client: Client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        };
        let answer = self.ask(ask).await?.value;
        let [of, parties] = &*gets(&answer) else {
            return Err(unexpected().into());
        };
        let Some(of) = of.kvs().first() else { return Ok(LatchState::default()) };
        let of = std::str::from_utf8(of.value()).ok().and_then(|of| of.parse::<NonZeroU32>().ok());
        let of = of.ok_or_else(|| {
            StoreError::failed(format!(
                "key {latch} is not a latch: another program wrote it; delete the key, or use another prefix"
            ))
        })?;
        Ok(LatchState { of: of.get(), counted: u32::try_from(parties.count()).unwrap_or(u32::MAX) })
    }
}
