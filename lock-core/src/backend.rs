//! The trait that a store implements.

use crate::{
    Ability, Background, Capabilities, Claim, Grant, Holder, LossCause, Mode, Moment, Name, StoreError,
    Token, Wakeup,
};
use async_trait::async_trait;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::{num::NonZeroU32, time::Duration};

/// A store of locks: an algorithm and its options.
///
/// A backend answers single requests. All policy lives above it, once for all stores, in [`Locks`](crate::Locks):
/// waiting budgets, retries, re-entrancy, renewal, the detection of loss, cancellation. Three requests are required;
/// `docs/write-a-store.md` leads through a complete small store, and `tenure-conformance` proves it.
///
/// # Behaviour that every method keeps
///
/// - **Idempotent on the claim.** Every request may be sent twice, because its first reply was lost. A claim that is
///   granted already is granted again, with the same token and a fresh lease.
/// - **Compare the claim.** Every change to a held name compares [`Claim::id`], so a stale client changes nothing.
/// - **The store's clock alone** decides whether a lease has run out.
/// - **Dropped at any await.** Every future may be dropped at any point. A request on its way may still be carried out:
///   the caller withdraws the claim. What must not happen is that a half-finished exchange goes back to a pool.
/// - **Bounded.** A request ends within the store's own connect and response timeouts.
/// - **From any runtime.** Requests come from the callers' runtimes, and renewals and releases from the
///   [background](Self::background). A runtime may end, or be kept busy, at any time, and takes with it what it drives:
///   a connection belongs to one runtime ([`PerRuntime`](crate::PerRuntime)), a session to the background.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The store in words, for errors, logs and people: `sqlite:/var/lib/app/locks.db`, `redis://cache:6379/0`. Never a
    /// password.
    fn store(&self) -> &str;

    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// One attempt to hold the claim's name.
    ///
    /// # Behaviour
    ///
    /// Grants the name when it is free or its lease has run out by the store's clock; grants it again to a claim that
    /// holds it already. A new grant's token is greater than every earlier one's of that name, also after the store
    /// forgot the name: `max(last + 1, the store's clock in µs)`. Leaves nothing behind when the answer is
    /// [`Attempt::Busy`].
    ///
    /// # Errors
    ///
    /// [`StoreError::unavailable`] when the store could not be asked or did not answer; the claim may have been
    /// granted all the same. [`StoreError::failed`] when asking again is of no use.
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError>;

    /// One attempt to hold the names of all these claims: all of them, or none.
    ///
    /// # Behaviour
    ///
    /// As [`try_acquire`](Self::try_acquire) for each, in one request and in one step: where one name is busy, none is
    /// granted. There are two claims or more, each for another name, in the order of their names, and their grants are
    /// answered in that order. [`Together::Apart`] when the store cannot do it for just these; they are then asked for one
    /// by one.
    ///
    /// Only called where [`Capabilities::together`] says so.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire): any of the claims may have been granted all the same.
    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<Together, StoreError> {
        let _ = claims;
        Ok(Together::Apart)
    }

    /// Releases the grant if its claim still holds the name.
    ///
    /// # Behaviour
    ///
    /// Wakes waiters where the store can. [`Release::NotHeld`] also when the claim's lease had run out although
    /// nobody took the name.
    ///
    /// The caller may give up before there is an answer. Within a session no lease ends what is left then, so the store
    /// itself carries on, in the [background](Self::background), until the grant is gone or the session is over.
    async fn release(&self, grant: &Grant) -> Result<Release, StoreError>;

    /// Extends each grant's lease to [`Grant::lease`] from now, and answers for each in the same order.
    ///
    /// # Behaviour
    ///
    /// Never more than [`Capabilities::renew_batch`] grants, all of one [`shard`](Self::shard). A lease that has run
    /// out is not extended, even if nobody took the name. Never called for grants that stand in a session.
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError>;

    /// Takes a claim back whose acquisition was given up: afterwards it neither holds nor queues.
    ///
    /// # Behaviour
    ///
    /// Also right for a claim that was never granted, or that the store never heard of. A request of that claim which
    /// is still on its way should find itself withdrawn where the store can do that; elsewhere its lease runs out.
    ///
    /// The default releases by the claim; the grant that it passes has a token that means nothing. A store with a
    /// queue must also leave the queue.
    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        self.release(&Grant::leased(claim, Token::MIN, Moment::now())).await.map(drop)
    }

    /// Waits until it is worth asking again for the claim's name, and never longer than `at_most`.
    ///
    /// The default lets `at_most` pass. A store that pushes returns as soon as it is told of a release. A hint is
    /// enough: the caller asks again in any case.
    async fn wait_for_release(&self, claim: &Claim, at_most: Duration) -> Result<(), StoreError> {
        let _ = claim;
        tokio::time::sleep(at_most).await;
        Ok(())
    }

    /// Asks until the claim is granted.
    ///
    /// The default asks, waits for a release, and asks again. Stores with a queue of their own override it.
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

    /// Changes how the grant's claim holds its name, without a moment in which it does not hold it.
    ///
    /// # Behaviour
    ///
    /// Only between [`Mode::Exclusive`] and [`Mode::Shared`], in stores that serve readers. Claim, token and lease stay.
    /// A writer becomes a reader in any case, and readers who wait are woken; a reader becomes a writer if nobody else
    /// holds the name, also when others wait. Converted already is [`Conversion::Converted`].
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::shared`].
    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let _ = (grant, to);
        Err(StoreError::unsupported(Ability::Readers))
    }

    /// Takes one step at the latch `name`, and tells how far the latch has come then.
    ///
    /// # Behaviour
    ///
    /// A latch has nothing to do with a lock of the same name, and no lease: what was counted stays until it is removed.
    /// [`LatchStep::CountDown`] makes the latch where there is none, and counts each party once. Where the latch waits
    /// for another number of parties it changes nothing, and tells of the latch as it is.
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::latches`].
    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let _ = (name, step);
        Err(StoreError::unsupported(Ability::Latches))
    }

    /// Who holds `name` now: nobody, one holder, or several readers.
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::listing`].
    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let _ = name;
        Err(StoreError::unsupported(Ability::Listing))
    }

    /// Everybody who holds a name that begins with `prefix`, ordered by name.
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::listing`].
    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let _ = prefix;
        Err(StoreError::unsupported(Ability::Listing))
    }

    /// Ends every grant of `name`, whoever holds it, and tells whom it put out. Their guards learn of it at the latest
    /// with their next renewal.
    ///
    /// # Errors
    ///
    /// [`StoreError::unsupported`] unless [`Capabilities::listing`].
    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let _ = name;
        Err(StoreError::unsupported(Ability::ForcedRelease))
    }

    /// Which part of the store keeps `name`. Grants of different shards never share a renewal request, so a slot or
    /// node that hangs does not hold up the others' renewal (clause L4). The default has one shard.
    fn shard(&self, name: &Name) -> u64 {
        let _ = name;
        0
    }

    /// Where renewal and releases in the background run. [`Locks`](crate::Locks) asks once, when it is made.
    ///
    /// The default is a thread of their own. A store that has tasks of its own which must go on, or a connection that
    /// must outlive the runtime in which it was opened, runs them there too and so returns what it has.
    fn background(&self) -> Background {
        Background::new()
    }

    /// Lets go of connections. Called once, by [`Locks::close`](crate::Locks::close), after the last release.
    async fn close(&self) {}
}

/// How long a waiter lets pass before it asks again: from a moment up to [`Capabilities::ask_again`], jittered.
pub(crate) struct Rounds {
    pauses: ExponentialBackoff,
    longest: Duration,
}

impl Rounds {
    pub(crate) fn of(capabilities: Capabilities) -> Self {
        let Capabilities { wakeup, ask_again: longest, .. } = capabilities;
        let first = if wakeup == Wakeup::Poll { Duration::from_millis(1).min(longest) } else { longest };
        // backon's jitter adds up to the delay itself, so half of what is meant is asked for.
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
        /// How much of the holder's lease is left by the store's clock, where the store tells.
        expires_in: Option<Duration>,
    },
}

/// The answer to one attempt at several names.
#[derive(Clone, Debug)]
pub enum Together<T = Grant> {
    /// Yes: one for each claim, in their order.
    Granted(Vec<T>),
    /// No: another holds one of the names, and none is granted.
    Busy,
    /// The store was not asked for all at once, because it cannot grant just these in one step.
    Apart,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The claim held the name until now.
    Released {
        /// Whether the store knows that another client waits for the name and cannot serve it in order. `Locks` then
        /// lets that client have a turn before it asks for the name again. `false` where the store has a queue.
        awaited: bool,
    },
    /// The claim did not hold the name any more; [`LossCause::Expired`] where the store cannot tell why.
    NotHeld(LossCause),
}

/// The answer to a [conversion](Backend::convert).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// The claim holds the name in the other mode now.
    Converted,
    /// Others hold the name as well: the claim holds it as before.
    Refused,
    /// The claim does not hold the name any more.
    NotHeld(LossCause),
}

/// The answer to the renewal of one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease was extended.
    Renewed,
    /// The claim does not hold the name any more.
    Lost(LossCause),
    /// No answer could be had for this one: it is asked again soon.
    Unanswered,
}

/// What is asked of a store about one latch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LatchStep {
    /// Only to look.
    Look,
    /// To count this party down, once.
    CountDown {
        /// Who has come.
        party: Name,
        /// How many parties the latch waits for, as this client knows it.
        of: NonZeroU32,
    },
    /// To forget the latch, and who has counted down.
    Remove,
}

/// How far a latch has come, after a [`LatchStep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatchState {
    /// How many parties it waits for, as the first one said who counted down; 0 when there is no such latch.
    pub of: u32,
    /// How many parties have counted down.
    pub counted: u32,
}

impl LatchState {
    /// How many parties are still missing.
    #[must_use]
    pub const fn missing(self) -> u32 {
        self.of.saturating_sub(self.counted)
    }
}
