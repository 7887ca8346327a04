//! A small store with leases, right or unsafe in one way.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tenure_conformance::{
    BoxError, Subject, async_trait,
    saboteur::{Hurt, Injection, Sabotage, Saboteur},
};
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, ClaimId, Grant, LossCause, Moment, Name, Release, Renewal,
    StoreError, Token,
};

/// A flaw of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// A release frees the name, even if another claim holds it.
    NoClaimCheckAtRelease,
    /// A renewal makes its claim the holder again, even if another claim holds the name.
    RenewalRevives,
    /// The token is the same for all.
    NoTokens,
    /// The tokens that it says it has reserved for successors it issues again.
    ReservesNothing,
    /// The token follows a clock that can be set back, and nothing else.
    TokensByClock,
}

#[derive(Clone, Debug)]
pub(crate) struct Careless {
    flaw: Flaw,
    held: Arc<Mutex<HashMap<Name, (ClaimId, Moment)>>>,
    last_token: Arc<Mutex<u64>>,
    /// When its clock showed zero.
    zero: Arc<Mutex<Moment>>,
}

impl Careless {
    pub(crate) fn with(flaw: Flaw) -> Arc<dyn Subject> {
        let zero = Arc::new(Mutex::new(Moment::now()));
        Arc::new(Self { flaw, held: Arc::default(), last_token: Arc::default(), zero })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Name, (ClaimId, Moment)>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, (_, expires)| !expires.has_passed());
        held
    }

    /// The last of the tokens that it reserves with a grant.
    fn token(&self, reserved: u32) -> Token {
        let mut last = self.last_token.lock().unwrap_or_else(PoisonError::into_inner);
        if self.flaw != Flaw::NoTokens || *last == 0 {
            *last += 1;
        }
        let granted = *last + u64::from(reserved);
        if self.flaw != Flaw::ReservesNothing {
            *last = granted;
        }
        // Grants at one time still have different tokens.
        let zero = *self.zero.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = if self.flaw == Flaw::TokensByClock { Moment::now().since(zero).as_micros() } else { 0 };
        Token::new(granted + u64::try_from(clock).expect("a short run")).expect("a small number")
    }
}

#[async_trait]
impl Subject for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.clone()))
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Saboteur for Careless {
    fn server(&self) -> String {
        "careless".to_owned()
    }

    fn can(&self, hurt: Hurt) -> bool {
        self.flaw == Flaw::TokensByClock && hurt == Hurt::ClockBack
    }

    async fn inject(&self, Injection { by, .. }: Injection) -> Sabotage {
        let mut zero = self.zero.lock().unwrap_or_else(PoisonError::into_inner);
        *zero = *zero + by;
        Ok(())
    }

    async fn undo(&self, _: Hurt) -> Sabotage {
        Ok(())
    }

    async fn heal(&self) -> Sabotage {
        Ok(())
    }
}

#[async_trait]
impl Backend for Careless {
    fn store(&self) -> &'static str {
        "careless"
    }

    fn capabilities(&self) -> Capabilities {
        let succession = if matches!(self.flaw, Flaw::None | Flaw::ReservesNothing) { 32 } else { 0 };
        Capabilities { succession, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let (mut held, now) = (self.held(), Moment::now());
        match held.get(&claim.name) {
            Some((holder, expires)) if *holder != claim.id => {
                return Ok(Attempt::Busy { expires_in: Some(expires.left()) });
            }
            _ => {}
        }
        held.insert(claim.name.clone(), (claim.id, now + claim.lease));
        let token = self.token(claim.reserve);
        Ok(Attempt::Granted(Grant::leased(claim, token, now).reserving(claim.reserve)))
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let mut held = self.held();
        let holds = held.get(&grant.name).is_some_and(|(holder, _)| *holder == grant.claim);
        if !holds && self.flaw != Flaw::NoClaimCheckAtRelease {
            return Ok(Release::Lost(LossCause::Expired));
        }
        held.remove(&grant.name);
        Ok(Release::Released { awaited: false })
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let mut held = self.held();
        let renew = |grant: &Grant| {
            let holds = held.get(&grant.name).is_some_and(|(holder, _)| *holder == grant.claim);
            if !holds && self.flaw != Flaw::RenewalRevives {
                return Renewal::Lost(LossCause::Expired);
            }
            held.insert(grant.name.clone(), (grant.claim, Moment::now() + grant.lease));
            Renewal::Renewed
        };
        Ok(grants.iter().map(renew).collect())
    }
}
