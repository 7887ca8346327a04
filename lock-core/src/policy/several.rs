//! Several names in one request, if the store can do that and all of them are free.

use super::{acquire::Acquisition, client::Client, guard::Guard, queue::Seat, withdraw::OpenClaim};
use crate::{
    contract::{Claim, Error, StoreError},
    metrics::{Ending, Waiting},
    store::AttemptAll,
};
use std::{sync::Arc, time::Duration};

/// The outcome of one attempt at several names.
pub(crate) enum AllOrNone {
    /// All of them are held.
    Held(Vec<Guard>),
    /// Another holds one of them.
    Busy,
    /// They must be requested one by one.
    Apart,
}

impl Acquisition {
    /// Makes one attempt at all of these, which are for different names and sorted by name.
    ///
    /// Also returns [`AllOrNone::Apart`] if one of them has an owner: an owner re-enters its holds and does not request
    /// them.
    ///
    /// `then_apart` says that the caller requests them one by one unless this succeeds.
    ///
    /// # Cancel safety
    ///
    /// When dropped, its claims are withdrawn in the background.
    pub(crate) async fn attempt_all(all: &[Self], then_apart: bool) -> Result<AllOrNone, Error> {
        let [first, _, ..] = all else { return Ok(AllOrNone::Apart) };
        let client = &first.client;
        let apart = |one: &Self| one.options.owner.is_some() || !Arc::ptr_eq(&one.client, client);
        if !client.store.capabilities().together || all.iter().any(apart) {
            return Ok(AllOrNone::Apart);
        }
        let mut waiting: Vec<Waiting> = all.iter().map(Self::waiting).collect();
        // Otherwise each is counted by its own ending.
        let only_if_acquired = |all: &mut Vec<Waiting>| all.iter_mut().for_each(Waiting::only_if_acquired);
        if then_apart {
            only_if_acquired(&mut waiting);
        }
        let outcome = Self::attempt_together(client, first, all).await;
        let ending = match &outcome {
            Ok(AllOrNone::Held(_)) => Some(Ending::Acquired),
            Ok(AllOrNone::Apart) => None,
            Ok(AllOrNone::Busy) | Err(Error::Unavailable { .. }) if then_apart => None,
            Ok(AllOrNone::Busy) => Some(Ending::Busy),
            Err(error) => Some(Ending::of(error)),
        };
        match ending {
            Some(ending) => waiting.into_iter().for_each(|one| one.ended(ending)),
            None => only_if_acquired(&mut waiting),
        }
        outcome
    }

    async fn attempt_together(client: &Arc<Client>, first: &Self, all: &[Self]) -> Result<AllOrNone, Error> {
        client.check_open()?;
        let _under_way = client.acquisitions.token();
        let seats = all.iter().map(Self::seat);
        let Some(seats) = seats.collect::<Option<Vec<Seat>>>() else { return Ok(AllOrNone::Busy) };
        let shortest = all.iter().map(|one| one.lease).min().unwrap_or(Duration::ZERO);
        // Not every store reserves tokens in such a request, and asked again it would count others' as reserved (T1).
        let claims = all.iter().map(|one| Claim { reserve: 0, ..one.claim(false) });
        let mut open: Vec<_> = claims.map(|claim| OpenClaim::new(client, claim)).collect();
        let claims: Vec<Claim> = open.iter().map(|open| open.claim().clone()).collect();
        let answer = tokio::select! {
            biased;
            () = client.closing.cancelled() => return Err(client.closed_error()),
            answer = tokio::time::timeout(shortest, client.store.try_acquire_all(&claims)) => answer,
        };
        let grants = match answer {
            Ok(Ok(AttemptAll::Granted(grants)))
                if grants.iter().map(|grant| grant.claim).eq(claims.iter().map(|claim| claim.id)) =>
            {
                grants
            }
            Ok(Ok(AttemptAll::Granted(_))) => {
                let error = StoreError::failed("the store granted claims that were not requested");
                return Err(first.failed(error));
            }
            Ok(Ok(no @ (AttemptAll::Busy | AttemptAll::Apart))) => {
                open.iter_mut().for_each(OpenClaim::settle);
                return Ok(if matches!(no, AttemptAll::Busy) { AllOrNone::Busy } else { AllOrNone::Apart });
            }
            Ok(Err(error)) => {
                for open in &mut open {
                    open.failed(&error);
                }
                return Err(first.failed(error));
            }
            Err(_) => return Err(first.no_answer()),
        };
        // If one has already expired, the guards of the others are dropped, which releases them.
        let mut guards = Vec::with_capacity(all.len());
        for (((one, grant), seat), open) in all.iter().zip(grants).zip(seats).zip(&mut open) {
            guards.push(one.hold(grant, seat).map_err(|_| one.too_late())?);
            open.settle();
        }
        for (one, guard) in all.iter().zip(&guards) {
            if !guard.fresh().await {
                return Err(one.too_late());
            }
        }
        Ok(AllOrNone::Held(guards))
    }
}
