//! Several names in one request, if the store can do that and all of them are free.

use super::{acquire::Acquisition, guard::Guard, queue::Seat, withdraw::OpenClaim};
use crate::{Claim, Error, StoreError, Together};
use std::{sync::Arc, time::Duration};

impl Acquisition {
    /// Makes one attempt at all of these, which are for different names and sorted by name.
    ///
    /// Also returns [`Together::Apart`] if one of them has an owner: what an owner already holds is re-entered, not
    /// requested.
    ///
    /// # Cancel safety
    ///
    /// When dropped, what may have been granted is withdrawn in the background.
    pub(crate) async fn together(all: &[Self]) -> Result<Together<Guard>, Error> {
        let [first, _, ..] = all else { return Ok(Together::Apart) };
        let client = &first.client;
        let apart = |one: &Self| one.terms.owner.is_some() || !Arc::ptr_eq(&one.client, client);
        if !client.store.backend.capabilities().together || all.iter().any(apart) {
            return Ok(Together::Apart);
        }
        client.check_open()?;
        let _under_way = client.acquisitions.token();
        let seats = all.iter().map(Self::seat);
        let Some(seats) = seats.collect::<Option<Vec<Seat>>>() else { return Ok(Together::Busy) };
        let shortest = all.iter().map(|one| one.lease).min().unwrap_or(Duration::ZERO);
        let mut open: Vec<_> = all.iter().map(|one| OpenClaim::new(client, one.claim(false))).collect();
        let claims: Vec<Claim> = open.iter().map(|open| open.claim().clone()).collect();
        let answer = tokio::select! {
            biased;
            () = client.closing.cancelled() => return Err(client.closed_error()),
            answer = tokio::time::timeout(shortest, client.store.backend.try_acquire_all(&claims)) => answer,
        };
        let grants = match answer {
            Ok(Ok(Together::Granted(grants)))
                if grants.iter().map(|grant| grant.claim).eq(claims.iter().map(|claim| claim.id)) =>
            {
                grants
            }
            Ok(Ok(Together::Granted(_))) => {
                let error = StoreError::failed("the store granted other claims than requested");
                return Err(first.failed(error));
            }
            Ok(Ok(no @ (Together::Busy | Together::Apart))) => {
                open.iter_mut().for_each(OpenClaim::settle);
                return Ok(if matches!(no, Together::Busy) { Together::Busy } else { Together::Apart });
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
        Ok(Together::Granted(guards))
    }
}
