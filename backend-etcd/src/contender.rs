//! A claim that enters the queue of its lock.

use crate::{
    card::Card,
    claims::Removed,
    keys::Keys,
    link::{Answer, Silence},
    queue::{Place, Queue},
    session::{Live, token, unexpected},
};
use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, TxnResponse, WatchOptions,
};
use futures_util::future::join_all;
use std::sync::Arc;
use tenure_core::{Claim, Grant, Mode, StoreError, Token};
use tokio::{task::yield_now, time::sleep};

/// How many locks one transaction may be about: a cluster allows 128 operations in each of its three parts.
pub(crate) const TOGETHER: usize = 40;

/// Why a claim was not granted.
pub(crate) enum Stop {
    /// The session has ended: the claim must queue in another one.
    SessionOver,
    Failed(StoreError),
}

impl From<Silence> for Stop {
    fn from(silence: Silence) -> Self {
        match silence {
            Silence::SessionOver => Self::SessionOver,
            Silence::Failed(error) => Self::Failed(error),
        }
    }
}

/// A claim and its key.
struct Wanted {
    claim: Claim,
    /// The prefix of the keys of its lock's contenders.
    lock: Vec<u8>,
    key: Vec<u8>,
    /// Marks that the claim must get no key any more.
    spent: Vec<u8>,
}

/// Where a claim stands in its queue.
enum Stand {
    Holds(Token),
    /// Until something changes in these keys after that revision.
    Behind {
        key: Vec<u8>,
        watch: WatchOptions,
        revision: i64,
    },
    Mismatch(String),
}

/// Claims in one session.
pub(crate) struct Contender<'a> {
    live: &'a Arc<Live>,
    wanted: Arc<Vec<Wanted>>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(live: &'a Arc<Live>, keys: &Keys, claims: &[Claim]) -> Self {
        let wanted = claims.iter().map(|claim| Wanted {
            claim: claim.clone(),
            lock: keys.lock(&claim.name),
            key: keys.contender(&claim.name, claim.id),
            spent: keys.spent(claim.id),
        });
        Self { live, wanted: Arc::new(wanted.collect()) }
    }

    /// Acquires all locks if each admits its claim behind its whole queue; leaves nothing behind otherwise.
    pub(crate) async fn attempt(&self) -> Result<Option<Vec<Grant>>, Stop> {
        let _contending = self.live.contend();
        let tokens = self.in_turn(attempt).await?;
        match tokens {
            Some(tokens) => {
                let grants =
                    self.wanted.iter().zip(tokens).map(|(wanted, token)| self.grant(&wanted.claim, token));
                join_all(grants).await.into_iter().collect::<Result<_, _>>().map(Some)
            }
            None => Ok(None),
        }
    }

    /// Waits in the queue until those before the claim admit it.
    pub(crate) async fn wait(&self) -> Result<Grant, Stop> {
        let _contending = self.live.contend();
        let claim = &self.wanted[0].claim;
        loop {
            let (key, watch, revision) = match self.in_turn(stand).await? {
                Stand::Holds(token) => return self.grant(claim, token).await,
                Stand::Behind { key, watch, revision } => (key, watch, revision),
                Stand::Mismatch(why) => {
                    if let Some(Removed::Failed(error)) = self.live.remove(claim.id).await {
                        return Err(Stop::Failed(error));
                    }
                    return Err(Stop::Failed(StoreError::mismatch(why)));
                }
            };
            tokio::select! {
                biased;
                () = self.live.over.cancelled() => return Err(Stop::SessionOver),
                () = self.live.link.changed(key, watch, revision) => {}
                // The member that watches may have gone silent.
                () = sleep(self.live.ask_again) => {}
            }
        }
    }

    async fn grant(&self, claim: &Claim, token: Token) -> Result<Grant, Stop> {
        self.live.assured().await;
        match self.live.grant(claim, token) {
            Some(Ok(grant)) => Ok(grant),
            Some(Err(_)) => {
                // The cluster may have ended the session without our knowing, so it is given up.
                self.live.end();
                Err(Stop::SessionOver)
            }
            None => Err(withdrawn()),
        }
    }

    /// Runs a request that may make the claims' keys to completion in the background, even if the caller is dropped, so a
    /// removal can wait for it and no key appears afterwards.
    async fn in_turn<T, F>(&self, request: impl FnOnce(Arc<Live>, Arc<Vec<Wanted>>) -> F) -> Result<T, Stop>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Stop>> + Send + 'static,
    {
        let mut turns = Vec::new();
        for Wanted { claim, key, .. } in &*self.wanted {
            let turn = loop {
                if self.live.is_over() {
                    return Err(Stop::SessionOver);
                }
                match self.live.register(claim.id, key) {
                    Ok(turn) => break turn,
                    // An earlier request left the queue, and was given up before the answer came.
                    Err(turn) => {
                        drop(turn.lock().await);
                        yield_now().await;
                    }
                }
            };
            turns.push(turn.lock_owned().await);
        }
        let requested = request(Arc::clone(self.live), Arc::clone(&self.wanted));
        let live = Arc::clone(self.live);
        let asking = self.live.background.spawn(async move {
            let _turns = turns;
            live.unless_over(requested).await
        });
        match asking.await {
            Ok(Some(answer)) => answer,
            Ok(None) | Err(_) => Err(Stop::SessionOver),
        }
        .inspect_err(|stop| {
            if matches!(stop, Stop::SessionOver) {
                self.live.end();
            }
        })
    }
}

impl Wanted {
    fn put(&self, live: &Live) -> TxnOp {
        let options = PutOptions::new().with_lease(live.lease);
        TxnOp::put(self.key.clone(), Card::of(&self.claim).bytes(), Some(options))
    }

    fn get(&self) -> TxnOp {
        TxnOp::get(self.key.clone(), None)
    }

    /// The contenders of the lock, from the first; at most so many.
    fn list(&self, limit: i64) -> TxnOp {
        let first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        TxnOp::get(self.lock.clone(), Some(first.with_limit(limit)))
    }

    fn is_spent(&self) -> TxnOp {
        TxnOp::get(self.spent.clone(), Some(GetOptions::new().with_count_only()))
    }

    fn may_get_a_key(&self) -> Compare {
        Compare::create_revision(self.spent.clone(), CompareOp::Equal, 0)
    }

    /// Whether the queue has no key that was made or changed after this revision. Deleted keys do not count.
    fn is_unchanged_since(&self, revision: i64) -> Compare {
        Compare::mod_revision(self.lock.clone(), CompareOp::Less, revision + 1).with_prefix()
    }
}

/// Puts the claims' keys behind their queues, in one step, if all of them hold their names then.
async fn attempt(live: Arc<Live>, wanted: Arc<Vec<Wanted>>) -> Result<Option<Vec<Token>>, Stop> {
    // At first only if no queue has anyone in it.
    let mut seen = 0;
    loop {
        let unchanged =
            wanted.iter().flat_map(|wanted| [wanted.is_unchanged_since(seen), wanted.may_get_a_key()]);
        let puts: Vec<_> = wanted.iter().map(|wanted| wanted.put(&live)).collect();
        let looks = wanted.iter().flat_map(|wanted| {
            let limit = i64::from(wanted.claim.mode == Mode::Exclusive);
            [wanted.is_spent(), wanted.get(), wanted.list(limit)]
        });
        let (unchanged, looks): (Vec<_>, Vec<_>) = (unchanged.collect(), looks.collect());
        let answer = make(&live, &wanted, Txn::new().when(unchanged).and_then(puts).or_else(looks)).await?;
        let revision = answer_revision(&answer)?;
        if answer.succeeded() {
            let token = token(revision).map_err(Stop::Failed)?;
            return Ok(Some(vec![token; wanted.len()]));
        }
        let mut answers = gets(&answer).into_iter();
        let (mut held, mut refused, mut stale) = (Vec::new(), None, false);
        for wanted in &*wanted {
            let (Some(spent), Some(own), Some(others)) = (answers.next(), answers.next(), answers.next())
            else {
                return Err(unexpected().into());
            };
            if spent.count() > 0 {
                return Err(withdrawn());
            }
            let queue = queue(&others);
            match own.kvs().first().map(Place::from) {
                // It was granted before, and the answer was lost.
                Some(own)
                    if own.lease == live.lease
                        && queue.holders().iter().any(|holder| holder.key == own.key) =>
                {
                    held.push(own);
                }
                // It waits from an earlier request, or its session is ending: that grant is lost, and must not be taken for
                // a new one.
                Some(own) => {
                    live.delete_unless_new(&own.key, own.created).await?;
                    stale = true;
                }
                None if queue.admits(wanted.claim.mode) => {}
                None => refused = Some(queue.agrees(wanted.claim.mode)),
            }
        }
        if held.len() == wanted.len() {
            let tokens = held.iter().map(|own| token(own.created).map_err(Stop::Failed));
            return tokens.collect::<Result<_, _>>().map(Some);
        }
        // Of several, one was released by force.
        if !held.is_empty() {
            return Err(withdrawn());
        }
        if let Some(agrees) = refused {
            live.leave(&wanted.iter().map(|wanted| wanted.claim.id).collect::<Vec<_>>());
            return agrees.map(|()| None).map_err(|why| Stop::Failed(StoreError::mismatch(why)));
        }
        // Readers may come faster than this client can look.
        if !wanted.iter().all(|wanted| live.wants(wanted.claim.id)) {
            return Err(withdrawn());
        }
        seen = if stale { 0 } else { revision };
    }
}

/// Puts the claim's key behind its queue, unless it is there, and looks at those before it.
async fn stand(live: Arc<Live>, wanted: Arc<Vec<Wanted>>) -> Result<Stand, Stop> {
    let all = wanted;
    let wanted = &all[0];
    let Wanted { claim: Claim { mode, .. }, lock, key, .. } = wanted;
    loop {
        let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let enter = Txn::new()
            .when([absent, wanted.may_get_a_key()])
            .and_then([wanted.put(&live), wanted.list(1)])
            .or_else([wanted.is_spent(), wanted.get(), wanted.list(1)]);
        let answer = make(&live, &all, enter).await?;
        let made = answer.succeeded().then_some(answer_revision(&answer)?);
        let found = gets(&answer);
        let (created, first) = match (made, &*found) {
            (Some(made), [first]) => (made, first),
            (None, [spent, _, _]) if spent.count() > 0 => return Err(withdrawn()),
            (None, [_, own, first]) => {
                let own = own.kvs().first().ok_or_else(unexpected)?;
                if own.lease() != live.lease {
                    live.delete_unless_new(key, own.create_revision()).await?;
                    continue;
                }
                (own.create_revision(), first)
            }
            _ => return Err(unexpected().into()),
        };
        let holds = || token(created).map(Stand::Holds).map_err(Stop::Failed);
        if first.kvs().first().is_none_or(|first| first.key() == key) {
            return holds();
        }
        // An exclusive claim needs only the contender right before it.
        let order = if *mode == Mode::Exclusive { SortOrder::Descend } else { SortOrder::Ascend };
        let before = GetOptions::new()
            .with_prefix()
            .with_max_create_revision(created - 1)
            .with_sort(SortTarget::Create, order)
            .with_limit(i64::from(*mode == Mode::Exclusive));
        let stands = Compare::create_revision(key.clone(), CompareOp::Equal, created);
        let look = Txn::new().when([stands]).and_then([TxnOp::get(lock.clone(), Some(before))]);
        let answer = live.commit(look).await?.value;
        if !answer.succeeded() {
            // Another client deleted the key.
            continue;
        }
        let revision = answer_revision(&answer)?;
        let queue = queue(gets(&answer).first().ok_or_else(unexpected)?);
        if queue.admits(*mode) {
            return holds();
        }
        if let Err(why) = queue.agrees(*mode) {
            return Ok(Stand::Mismatch(why));
        }
        let (key, watch) = match queue.waits_for(*mode) {
            Some(place) => (place.key.clone(), WatchOptions::new()),
            None => (lock.clone(), WatchOptions::new().with_prefix()),
        };
        return Ok(Stand::Behind { key, watch, revision });
    }
}

/// Commits a transaction that may make the claims' keys, and notes whether a copy of it may still arrive.
async fn make(live: &Live, wanted: &[Wanted], txn: Txn) -> Result<TxnResponse, Stop> {
    let answer = live.commit(txn).await;
    if !matches!(&answer, Ok(Answer { resent: false, .. })) {
        live.doubt(wanted.iter().map(|wanted| wanted.claim.id));
    }
    Ok(answer?.value)
}

fn withdrawn() -> Stop {
    let why = "the claim was withdrawn, or released by force, before this request arrived";
    Stop::Failed(StoreError::claim_spent(why))
}

fn queue(found: &GetResponse) -> Queue {
    Queue::of(found.kvs().iter().map(Place::from).collect())
}

/// The store's revision at which a transaction was carried out.
pub(crate) fn answer_revision(answer: &TxnResponse) -> Result<i64, Silence> {
    answer.header().map(etcd_client::ResponseHeader::revision).ok_or_else(unexpected)
}

/// The get responses of a transaction, in order.
pub(crate) fn gets(answer: &TxnResponse) -> Vec<GetResponse> {
    let found = answer.op_responses().into_iter().filter_map(|answer| match answer {
        TxnOpResponse::Get(found) => Some(found),
        _ => None,
    });
    found.collect()
}
