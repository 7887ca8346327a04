//! The trait that a store implements.

use crate::{
    contract::{
        Capabilities, Capability, Claim, Grant, Holder, LossCause, Mode, Moment, Name, Standing, StoreError,
        Token, Waiter, Wakeup,
    },
    store::Background,
};
use async_trait::async_trait;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::{num::NonZeroU32, time::Duration};

/// A store of locks.
///
/// A backend answers single requests. All policy is above it, in [`Locks`](crate::Locks), once for all stores: time
/// limits, retries, re-entry, renewal, detection of loss, cancellation. Three requests are required.
/// `docs/contributing/write-a-store.md` walks through a complete small store, and `tenure-conformance` proves it.
///
/// # Behaviour of every method
///
/// - **Idempotent on the claim.** Every request may be sent twice, because its first reply was lost. A claim that
///   already holds the name is granted again, with the same token and a fresh lease, unless the one that it has lasts
///   longer: the request may come late, after an extension.
/// - **Compare the claim.** Every change to a held name compares [`Claim::id`], so a stale client changes nothing.
/// - **The store's clock alone** decides whether a lease has expired.
/// - **Dropped at any await.** Every future may be dropped at any point. A request on its way may still be carried out;
///   the caller withdraws the claim. A half-finished exchange must never go back to a pool.
/// - **Bounded.** A request ends within the store's own connect and response timeouts.
/// - **From any runtime.** Requests come from the callers' runtimes, and renewals and releases from the
///   [background](Self::background). A runtime may end or be busy at any time, and so may everything that it drives. So
///   a connection belongs to one runtime ([`PerRuntime`](crate::PerRuntime)), and a session to the background.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the store's name for errors, logs and people: `sqlite:/var/lib/app/locks.db`, `redis://cache:6379/0`. It
    /// never contains a password.
    fn store(&self) -> &str;

    /// Returns what this store can do.
    fn capabilities(&self) -> Capabilities;

    /// Makes one attempt to grant the claim.
    ///
    /// # Behaviour
    ///
    /// Grants the name if it is free or its lease has expired by the store's clock, and grants it again to a claim that
    /// already holds it. A new grant's token is greater than all earlier ones of that name, even after the store forgot
    /// the name: `max(last + 1, the store's clock in µs)`. A store that can [reserve](Claim::reserve) tokens for the
    /// claim adds their number to that, and says so with [`Grant::reserving`]; a claim that already holds the name gets
    /// the same tokens again. A store that ignores the reservation grants one token, and has no succession. Leaves
    /// nothing behind if the answer is [`Attempt::Busy`].
    ///
    /// # Errors
    ///
    /// [`StoreError::unavailable`] if the store could not be asked or did not answer; the claim may have been granted
    /// anyway. [`StoreError::failed`] if asking again will not help.
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError>;

    /// Makes one attempt to grant all these claims: all of them, or none.
    ///
    /// # Behaviour
    ///
    /// Like [`try_acquire`](Self::try_acquire) for each, in one request and in one step: if one name is busy, none is
    /// granted. There are two claims or more, for different names, sorted by name. The grants are returned in that
    /// order. Returns [`AttemptAll::Apart`] if the store cannot do this for these claims; they are then requested one
    /// by one.
    ///
    /// Only called if [`Capabilities::together`] is set.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire): any of the claims may have been granted anyway.
    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, StoreError> {
        let _ = claims;
        Ok(AttemptAll::Apart)
    }

    /// Releases the grant if its claim still holds the name.
    ///
    /// # Behaviour
    ///
    /// Wakes waiters if the store can. Returns [`Release::Lost`] even if the claim's lease has expired but no other
    /// claim has acquired the name. Asked again about a lease that it has released, the store does not answer
    /// [`LossCause::Forgotten`]: it still knows the token.
    ///
    /// The caller may give up before there is an answer. In a session, no lease would end the grant then, so the store
    /// itself goes on in the [background](Self::background) until the grant is gone or the session has ended.
    async fn release(&self, grant: &Grant) -> Result<Release, StoreError>;

    /// Renews each grant: its lease becomes [`Grant::lease`] from now. Returns one answer for each, in the same order.
    ///
    /// # Behaviour
    ///
    /// A claim that holds the name in a mode that does not [cover](Mode::covers) [`Grant::mode`] is
    /// [forgotten](LossCause::Forgotten): the store has lost an upgrade. It is not renewed, and stays as it is. A claim
    /// that holds the name in a mode that covers more is renewed, because a conversion may be on its way.
    ///
    /// Gets at most [`Capabilities::renew_batch`] grants, all of one [`shard`](Self::shard). May be bounded by the
    /// shortest of their leases: holders that can wait twice as long for the answer are renewed by another request.
    /// Does not renew an expired lease, even if no other claim has acquired the name. Never called for grants in a
    /// session.
    ///
    /// # Errors
    ///
    /// [`StoreError::unavailable`] and [`StoreError::failed`], about all of these grants. After a failure that asking again
    /// does not mend, the caller asks for one half and for the other, and so on: a grant that the store refuses to renew
    /// costs no other its lease (clause L9).
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError>;

    /// Withdraws a claim whose acquisition was cancelled: afterwards it neither holds nor waits.
    ///
    /// # Behaviour
    ///
    /// Also works for a claim that was never granted, or that the store does not know. If the store can, a request of
    /// that claim that is still on its way finds the claim withdrawn; otherwise its lease expires.
    ///
    /// The default releases by the claim, with a grant whose token means nothing. A store with a queue must also remove
    /// the claim from it.
    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.release(&Grant::leased(claim, Token::MIN, Moment::now())).await.map(drop)
    }

    /// Waits until asking again for the claim's name may succeed, at most for `at_most`.
    ///
    /// The default waits for `at_most`. A store that pushes returns as soon as it learns of a release. A hint is
    /// enough: the caller asks again in any case.
    async fn wait_for_release(&self, claim: &Claim, at_most: Duration) -> Result<(), StoreError> {
        let _ = claim;
        tokio::time::sleep(at_most).await;
        Ok(())
    }

    /// Asks until the claim is granted.
    ///
    /// The default asks, waits for a release, and asks again. A store with its own queue, or with a better way to wait,
    /// overrides it.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let mut rounds = Rounds::of(self.capabilities());
        loop {
            let expires_in = match self.try_acquire(claim).await? {
                Attempt::Granted(grant) => return Ok(grant),
                Attempt::Busy { expires_in } => expires_in,
            };
            let pause = rounds.next();
            // One millisecond more, because stores count leases in milliseconds.
            let until_expiry = expires_in.map_or(pause, |left| left + Duration::from_millis(1));
            self.wait_for_release(claim, pause.min(until_expiry)).await?;
        }
    }

    /// Changes the mode of a grant, without a moment in which it does not hold the name.
    ///
    /// # Behaviour
    ///
    /// Only between [`Mode::Exclusive`] and [`Mode::Shared`], in stores that support shared mode. Claim, token and
    /// lease stay. A downgrade always succeeds, and waiting readers are woken. An upgrade succeeds if no other claim
    /// holds the name, even if others wait. A grant that already has the mode gives [`Conversion::Converted`].
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::shared`].
    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let _ = (grant, to);
        Err(StoreError::unsupported(Capability::Shared))
    }

    /// Takes one step at the latch `name`, and returns the latch's state after it.
    ///
    /// # Behaviour
    ///
    /// A latch is independent of a lock of the same name, and has no lease: the count stays until the latch is removed.
    /// [`LatchStep::CountDown`] makes the latch if there is none, and counts each party once. If the latch waits for
    /// another number of parties, it changes nothing and returns the latch as it is.
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::latches`].
    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let _ = (name, step);
        Err(StoreError::unsupported(Capability::Latches))
    }

    /// Returns the current holders of `name`: none, one, or several.
    ///
    /// [`Locks`](crate::Locks) also asks this beside a contender's [`acquire`](Self::acquire), and drops the future when
    /// that is answered or the wait is over.
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::listing`].
    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let _ = name;
        Err(StoreError::unsupported(Capability::Listing))
    }

    /// Returns the holders of all names that begin with `prefix`, sorted by name.
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::listing`].
    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let _ = prefix;
        Err(StoreError::unsupported(Capability::Listing))
    }

    /// Lists the waiters for `name` in the store's queue, in the order in which they will be granted it.
    ///
    /// # Behaviour
    ///
    /// For people only, so it changes nothing. Leaves out the holders, and waiters that have lost their places. Each
    /// client has one waiter; its other tasks wait behind that one, in memory. A claim that makes a single attempt may
    /// be listed, if the store lets it queue for a moment.
    ///
    /// The default is right for a store without a queue, and for one whose queue cannot be listed, such as a database's
    /// own queue for a locked row.
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::waiting`].
    async fn waiting(&self, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        let _ = name;
        Err(StoreError::unsupported(Capability::Waiting))
    }

    /// Ends every grant of `name` by force, and returns its holders. Their guards learn of it at their next renewal or
    /// their deadline, whichever is first.
    ///
    /// Grants with a [lease](crate::Standing::Lease) end together with their claims: until their leases would have expired, a late
    /// attempt of such a claim is answered with [`StoreError::claim_spent`]. If it were granted, the next renewal of the
    /// old guard would succeed (clause U1).
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::listing`].
    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let _ = name;
        Err(StoreError::unsupported(Capability::ForcedRelease))
    }

    /// Returns the part of the store that keeps `name`. Grants of different shards never share a renewal request, so a
    /// slot or node that hangs does not delay renewals of the others (clause L4). The default is one shard.
    fn shard(&self, name: &Name) -> u64 {
        let _ = name;
        0
    }

    /// Returns where renewal and background releases run. [`Locks`](crate::Locks) asks once, when it is made.
    ///
    /// The default is a separate thread. A store whose own tasks must go on, or whose connection must outlive the
    /// runtime that opened it, uses its own background for them and returns that one.
    fn background(&self) -> Background {
        Background::new()
    }

    /// Closes connections. Called once by each [`Locks`](crate::Locks::close), after its last release.
    ///
    /// # Behaviour
    ///
    /// Several `Locks` may have been made of this backend, or of its clones, and each calls this when it closes
    /// ([`Background::clients`] counts them). The others' locks stay held, and their waiters go on waiting and still
    /// hear of releases. A later request reopens what it needs.
    async fn close(&self) {}
}

/// How long a waiter pauses before it asks again: growing up to [`Capabilities::ask_again`], with jitter.
pub(crate) struct Rounds {
    pauses: ExponentialBackoff,
    longest: Duration,
}

impl Rounds {
    pub(crate) fn of(capabilities: Capabilities) -> Self {
        let Capabilities { wakeup, ask_again: longest, .. } = capabilities;
        let first = if wakeup == Wakeup::Poll { Duration::from_millis(1).min(longest) } else { longest };
        // backon's jitter adds up to the whole delay, so this asks for half the delay.
        let growing =
            ExponentialBuilder::new().with_factor(1.5).with_min_delay(first / 2).with_max_delay(longest / 2);
        Self { pauses: growing.with_jitter().without_max_times().build(), longest }
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.pauses.next().unwrap_or(self.longest).min(self.longest)
    }
}

/// The answer to one attempt.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// Yes.
    Granted(Grant),
    /// No: another holds the name.
    Busy {
        /// How much of the holder's lease is left by the store's clock, if the store tells.
        expires_in: Option<Duration>,
    },
}

/// The answer to one attempt at several names.
#[derive(Clone, Debug)]
pub enum AttemptAll {
    /// Yes: one grant for each claim, in their order.
    Granted(Vec<Grant>),
    /// No: another holds one of the names, and none is granted.
    Busy,
    /// The store cannot grant these claims in one step, so they must be requested one by one.
    Apart,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The claim held the name until now.
    Released {
        /// Whether the store knows that another client waits for the name, but cannot serve it in order. `Locks` then
        /// gives that client a chance before it asks for the name again. `false` if the store has a queue.
        awaited: bool,
    },
    /// The claim no longer held the name; [`LossCause::Expired`] if the store cannot tell why.
    Lost(LossCause),
}

/// The answer to a [conversion](Backend::convert).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// The claim holds the name in the other mode now.
    Converted,
    /// Others hold the name too, so the claim holds it as before.
    Refused,
    /// The claim no longer holds the name.
    Lost(LossCause),
}

/// The answer to the renewal of one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease was renewed.
    Renewed,
    /// The claim no longer holds the name.
    Lost(LossCause),
    /// There was no answer for this one, or the request was sent twice and a copy of it may still arrive; it is asked
    /// again soon.
    Unanswered,
}

impl Renewal {
    /// Answers for grants in a session, which need no renewal. A grant with a lease stays unanswered.
    #[must_use]
    pub fn in_session(grants: &[Grant]) -> Vec<Self> {
        let answer = |grant: &Grant| match &grant.standing {
            Standing::Session(liveness) => liveness.loss().map_or(Self::Renewed, Self::Lost),
            Standing::Lease { .. } => Self::Unanswered,
        };
        grants.iter().map(answer).collect()
    }
}

/// A request about one latch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatchStep {
    /// Returns the state, without changing it.
    Look,
    /// Counts this party down, once.
    CountDown {
        /// The party that counts down.
        party: Name,
        /// How many parties the latch waits for, according to this client.
        of: NonZeroU32,
    },
    /// Removes the latch and its count.
    Remove,
}

/// The state of a latch after a [`LatchStep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatchState {
    /// How many parties it waits for, according to the first that counted down; 0 if there is no such latch.
    pub of: u32,
    /// How many parties have counted down.
    pub counted: u32,
}

impl LatchState {
    /// Returns how many parties are still missing.
    #[must_use]
    pub const fn missing(self) -> u32 {
        self.of.saturating_sub(self.counted)
    }
}
