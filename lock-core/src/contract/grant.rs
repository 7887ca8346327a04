//! Grants: a store's yes to a claim.

use crate::contract::{Claim, ClaimId, Epoch, Liveness, LossCause, Mode, Moment, Name, Token, lease};
use std::time::Duration;

/// The store's yes: this claim holds this name, with this token, until its standing ends.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The claim that was granted.
    pub claim: ClaimId,
    /// The name that it holds.
    pub name: Name,
    /// How it holds the name. In a renewal: the mode that its guards rely on; the store's may cover more.
    pub mode: Mode,
    /// Greater than the tokens of all earlier grants of that name. If tokens are [reserved](Self::reserved), the last
    /// of them.
    pub token: Token,
    /// How many of the tokens up to [`token`](Self::token) are for successors. All of these are greater than the tokens
    /// of earlier grants. Zero unless the claim asked for some: see [`reserving`](Self::reserving).
    pub reserved: u32,
    /// The lease to ask for when this grant is renewed.
    pub lease: Duration,
    /// How the grant ends if it is not released.
    pub standing: Standing,
    /// The epoch in which it was granted, if the store has epochs: the grant is lost when that ends.
    pub epoch: Option<Epoch>,
}

/// How an unreleased grant ends: lease or session.
#[derive(Clone, Debug)]
pub enum Standing {
    /// A lease on the store's clock, which renewal extends.
    Lease {
        /// The instant before the request for this grant was sent. The holder's deadline counts from it (clause L3).
        sent: Moment,
        /// How long the store keeps the grant until its first renewal: [`Grant::lease`] or less.
        stands: Duration,
    },
    /// A session or a connection, which the backend keeps alive.
    Session(Liveness),
}

impl Grant {
    /// Makes a grant of `claim` that lasts for the claim's lease. `sent` is the instant before the request was sent.
    #[must_use]
    pub fn leased(claim: &Claim, token: Token, sent: Moment) -> Self {
        Self::new(claim, token, Standing::Lease { sent, stands: claim.lease })
    }

    /// Makes a grant of `claim` that lasts for less than the claim's lease until its first renewal, which is then
    /// always made.
    ///
    /// For stores that hand a lock over to a client without being asked at that moment, and cannot know whether the
    /// client is still alive. `sent` is an instant before the hand-over.
    #[must_use]
    pub fn handed_over(claim: &Claim, token: Token, sent: Moment, stands: Duration) -> Self {
        Self::new(claim, token, Standing::Lease { sent, stands: stands.min(claim.lease) })
    }

    /// Makes a grant of `claim` that lasts as long as a session.
    #[must_use]
    pub fn in_session(claim: &Claim, token: Token, liveness: Liveness) -> Self {
        Self::new(claim, token, Standing::Session(liveness))
    }

    /// Returns why a grant in a session ended; `None` while it lasts, and for a grant with a lease.
    #[must_use]
    pub fn loss(&self) -> Option<LossCause> {
        match &self.standing {
            Standing::Session(liveness) => liveness.loss(),
            Standing::Lease { .. } => None,
        }
    }

    /// Returns this grant with this many tokens reserved below its [token](Self::token): see [`Claim::reserve`]. Its
    /// first holder has the smallest of them.
    #[must_use]
    pub fn reserving(self, tokens: u32) -> Self {
        Self { reserved: tokens, ..self }
    }

    /// Ties the grant to this epoch: it is lost when that ends.
    #[must_use]
    pub fn in_epoch(self, epoch: &Epoch) -> Self {
        Self { epoch: Some(epoch.clone()), ..self }
    }

    /// This grant as its holder counts on it, if its store keeps it longer than that.
    pub(crate) fn lasting(self, lease: Duration) -> Self {
        let standing = match self.standing {
            Standing::Lease { sent, .. } => Standing::Lease { sent, stands: lease },
            session @ Standing::Session(_) => session,
        };
        Self { lease, standing, ..self }
    }

    /// Whether the store has forgotten it.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.epoch.as_ref().is_some_and(Epoch::has_ended)
    }

    /// The token of the hold that has the grant. Those above it are for its successors.
    pub(crate) fn token_now(&self) -> Token {
        let token = self.token.get().saturating_sub(u64::from(self.reserved));
        Token::new(token).unwrap_or(Token::MIN)
    }

    /// This grant for its next hold in this process, if a token is left.
    pub(crate) fn for_successor(&self) -> Option<Self> {
        let reserved = self.reserved.checked_sub(1)?;
        Some(Self { reserved, ..self.clone() })
    }

    /// How long one request may take that ends the grant, or changes its mode, if nothing of it is left at `end`.
    pub(crate) fn patience(&self, end: Moment) -> Duration {
        match self.standing {
            Standing::Lease { .. } => lease::farewell_patience(self.lease, end),
            Standing::Session(_) => lease::session_patience(end),
        }
    }

    fn new(claim: &Claim, token: Token, standing: Standing) -> Self {
        let Claim { id, name, mode, lease, .. } = claim;
        let (name, reserved) = (name.clone(), 0);
        Self { claim: *id, name, mode: *mode, token, reserved, lease: *lease, standing, epoch: None }
    }
}
