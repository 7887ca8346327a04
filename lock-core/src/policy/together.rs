//! Several names in one request, where the store can and all of them are free.

use super::{
    acquire::{Acquisition, acquiring, granted, too_late, unavailable},
    holding::Holding,
    queue::Place,
    release::OpenClaim,
};
use crate::{Claim, Error, Guard, StoreError, Together};
use std::{sync::Arc, time::Duration};

impl Acquisition {
    /// One attempt at all of these, which are for different names and in their order.
    ///
    /// [`Together::Apart`] also when one of them has an owner: what an owner holds already is entered, not asked for.
    ///
    /// # Cancel safety
    ///
    /// When dropped, what may have been granted is withdrawn in the background.
    pub(crate) async fn together(all: Vec<Self>) -> Result<Together<Guard>, Error> {
        let [first, _, ..] = all.as_slice() else { return Ok(Together::Apart) };
        let (shared, name) = (Arc::clone(&first.shared), first.name.clone());
        let apart = |one: &Self| one.terms.owner.is_some() || !Arc::ptr_eq(&one.shared, &shared);
        if !shared.backend.capabilities().together || all.iter().any(apart) {
            return Ok(Together::Apart);
        }
        if shared.closing.is_cancelled() {
            return Err(shared.closed_error());
        }
        let _under_way = shared.acquisitions.token();
        let places = all.iter().map(|one| one.place(shared.queues.join(&one.name)));
        let Some(places) = places.collect::<Option<Vec<Place>>>() else { return Ok(Together::Busy) };
        let longest = all.iter().map(|one| one.lease).min().unwrap_or(Duration::ZERO);
        let mut open: Vec<_> = all.iter().map(|one| OpenClaim::new(&shared, one.claim(false))).collect();
        let claims: Vec<Claim> = open.iter().map(|open| open.claim().clone()).collect();
        let answer = tokio::select! {
            biased;
            () = shared.closing.cancelled() => return Err(shared.closed_error()),
            answer = tokio::time::timeout(longest, shared.backend.try_acquire_all(&claims)) => answer,
        };
        let grants = match answer {
            Ok(Ok(Together::Granted(grants)))
                if grants.iter().map(|grant| grant.claim).eq(claims.iter().map(|claim| claim.id)) =>
            {
                grants
            }
            Ok(Ok(Together::Granted(_))) => {
                let error = StoreError::failed("the store granted other claims than it was asked for");
                return Err(acquiring(&shared, &name, error));
            }
            Ok(Ok(no @ (Together::Busy | Together::Apart))) => {
                open.iter_mut().for_each(OpenClaim::settle);
                return Ok(if matches!(no, Together::Busy) { Together::Busy } else { Together::Apart });
            }
            Ok(Err(error)) => {
                for open in &mut open {
                    open.failed(&error);
                }
                return Err(acquiring(&shared, &name, error));
            }
            Err(_) => return Err(unavailable(&shared, &name, "no answer within the lease")),
        };
        // Where one has run out already the guards of the others are dropped, which releases them.
        let mut guards = Vec::with_capacity(all.len());
        for (((one, grant), place), open) in all.into_iter().zip(grants).zip(places).zip(&mut open) {
            match Holding::begin(&shared, grant, one.terms, place) {
                Ok(hold) => {
                    open.settle();
                    guards.push(granted(hold));
                }
                Err(_) => return Err(too_late(&shared, &one.name)),
            }
        }
        for guard in &guards {
            if !guard.fresh().await {
                return Err(too_late(&shared, guard.name()));
            }
        }
        Ok(Together::Granted(guards))
    }
}
