//! The holders and waiters of names, for people.

use crate::{
    keys::{Keys, claim_of},
    link::{Answer, Link, Silence},
    queue::{Place, Queue},
};
use etcd_client::{Client, Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnResponse};
use tenure_core::{Holder, Name, StoreError, Token, Waiter};

/// How many keys to ask for at a time.
const PAGE: i64 = 500;

impl Link {
    /// The holders of `name`, in the order in which they came.
    pub(crate) async fn holders(&self, keys: &Keys, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let queue = self.queue(keys, name).await?;
        Ok(queue.holders().iter().map(|place| holder(name, place)).collect())
    }

    /// The waiters for `name`, in order.
    pub(crate) async fn waiting(&self, keys: &Keys, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let queue = self.queue(keys, name).await?;
        Ok(queue.waiters().iter().map(|place| waiter(name, place)).collect())
    }

    /// Releases `name` by force.
    pub(crate) async fn force_release(&self, keys: &Keys, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let mut ended = Vec::new();
        for place in self.queue(keys, name).await?.holders() {
            // A late copy of its request would make the key anew. The mark goes with the holder's session.
            let mark = claim_of(&place.key).filter(|_| place.lease != 0).map(|claim| {
                TxnOp::put(keys.spent(claim), "", Some(PutOptions::new().with_lease(place.lease)))
            });
            let answer = match self.end(place, mark.clone()).await {
                // A full database takes deletions, but no mark.
                Err(Silence::Failed(error)) if mark.is_some() && !error.is_unavailable() => {
                    self.end(place, None).await
                }
                answer => answer,
            };
            // Otherwise it went by itself, or its session has ended.
            match answer {
                Ok(answer) if answer.value.succeeded() || answer.resent => ended.push(holder(name, place)),
                Ok(_) | Err(Silence::SessionOver) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(ended)
    }

    /// Deletes a contender's key, and makes the mark that its claim is spent, if any.
    async fn end(&self, place: &Place, mark: Option<TxnOp>) -> Result<Answer<TxnResponse>, Silence> {
        let ends: Vec<_> = [TxnOp::delete(&*place.key, None)].into_iter().chain(mark).collect();
        let same = Compare::create_revision(&*place.key, CompareOp::Equal, place.created);
        let end = Txn::new().when([same]).and_then(ends);
        let ask = |mut client: Client| {
            let end = end.clone();
            async move { client.txn(end).await }
        };
        self.ask(ask).await
    }

    /// The holders of all names that begin with `names`.
    pub(crate) async fn all_holders(&self, keys: &Keys, names: &str) -> Result<Vec<Holder>, StoreError> {
        let mut places = self.all(keys.locks(names)).await?;
        places.sort_by_cached_key(|place| keys.name_of(&place.key));
        let mut holders = Vec::new();
        let mut rest = places.into_iter().peekable();
        while let Some(place) = rest.next() {
            // Latches, and keys of other programs.
            let Some(name) = keys.name_of(&place.key) else { continue };
            let mut contenders = vec![place];
            while let Some(next) = rest.next_if(|next| keys.name_of(&next.key).as_ref() == Some(&name)) {
                contenders.push(next);
            }
            holders.extend(Queue::of(contenders).holders().iter().map(|place| holder(&name, place)));
        }
        Ok(holders)
    }

    async fn queue(&self, keys: &Keys, name: &Name) -> Result<Queue, Silence> {
        self.all(keys.lock(name)).await.map(Queue::of)
    }

    /// All keys that begin like this, as they were at one moment.
    async fn all(&self, begin: Vec<u8>) -> Result<Vec<Place>, Silence> {
        // The first of all keys has no empty name.
        let first = if begin.is_empty() { vec![0] } else { begin.clone() };
        let (mut found, mut from, mut at) = (Vec::new(), first, 0);
        loop {
            let page = GetOptions::new().with_range(end_of(&begin)).with_limit(PAGE).with_revision(at);
            let get = |mut client: Client| {
                let (from, page) = (from.clone(), page.clone());
                async move { client.get(from, Some(page)).await }
            };
            let answer = self.ask(get).await?.value;
            at = answer.header().map_or(at, |header| if at == 0 { header.revision() } else { at });
            found.extend(answer.kvs().iter().map(Place::from));
            let last = answer.kvs().last().map(KeyValue::key);
            match last.filter(|_| answer.more()) {
                Some(last) => from = [last, b"\0"].concat(),
                None => return Ok(found),
            }
        }
    }
}

/// The first key behind all that begin like this.
fn end_of(begin: &[u8]) -> Vec<u8> {
    let mut end = begin.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // To the end of all keys.
    vec![0]
}

fn holder(name: &Name, place: &Place) -> Holder {
    let mut holder = Holder::of(name.clone()).mode(place.mode);
    let Some(card) = &place.card else { return holder };
    holder = holder.info(card.info());
    if let (Some(claim), Ok(token)) = (claim_of(&place.key), Token::try_from(place.created)) {
        holder = holder.claim(claim, token);
    }
    match card.since() {
        Some((since, age)) => holder.since(since, age),
        None => holder,
    }
}

fn waiter(name: &Name, place: &Place) -> Waiter {
    let mut waiter = Waiter::of(name.clone()).mode(place.mode);
    let Some(card) = &place.card else { return waiter };
    waiter = waiter.info(card.info());
    if let Some(claim) = claim_of(&place.key) {
        waiter = waiter.claim(claim);
    }
    match card.since() {
        Some((since, age)) => waiter.since(since, age),
        None => waiter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_ends_behind_its_prefix() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b""), b"\0");
    }
}
