//! A latch, which opens when all parties have counted down.

use crate::{
    contract::{Capabilities, Capability, Error, InvalidName, Name, Operation, StoreError},
    policy::{client::Client, pauses::Pauses},
    store::{LatchState, LatchStep},
};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

/// The first and the longest pause between two checks of a closed latch.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A latch: closed until each of a number of parties has counted down, and open from then on. Made by
/// [`Locks::latch`](crate::Locks::latch).
///
/// The store keeps the count without a lease. A party that ends and starts again still counts only once, because it is
/// known by its name. All clients must agree on the number of parties; a client that disagrees gets an error with both
/// numbers. A latch and a lock of the same name are independent.
///
/// A latch stays, open or closed, until it is [removed](Self::remove). So use a new name for each purpose:
/// `import/2026-11-21`.
///
/// # Examples
///
/// Three machines load their parts of a batch, and the report is written when all are done:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
/// let loaded = locks.latch("batch-7", 3);
/// for machine in ["m1", "m2", "m3"] {
///     loaded.count_down(machine).await?;
/// }
/// loaded.wait().await?;
/// loaded.remove().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a latch does nothing until it is counted down or waited for"]
pub struct Latch {
    client: Arc<Client>,
    name: Result<Name, InvalidName>,
    parties: u32,
}

impl Latch {
    pub(crate) fn new(client: Arc<Client>, name: Result<Name, InvalidName>, parties: u32) -> Self {
        Self { client, name, parties }
    }

    /// Counts `party` down, and returns how many parties are still missing. Counting down again changes nothing, and
    /// neither does a party beyond the number that the latch waits for.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out. Calling it again is harmless, since each party counts once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] for the latch or the party; [`Error::InvalidOption`] for a latch of no parties;
    /// [`Error::Mismatch`] if the latch waits for another number of parties; [`Error::Unavailable`], after which the
    /// party may or may not have been counted; [`Error::Unsupported`]; [`Error::Closed`].
    pub async fn count_down(&self, party: impl AsRef<str>) -> Result<u32, Error> {
        let (name, of) = self.checked()?;
        let step = LatchStep::CountDown { party: Name::new(party)?, of };
        let state = self.step(name, &step).await.map_err(|error| self.error(name, error))?;
        self.still_missing(name, of, state)
    }

    /// Returns how many parties are still missing: 0 if the latch is open.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Errors
    ///
    /// As for [`count_down`](Self::count_down).
    pub async fn missing(&self) -> Result<u32, Error> {
        let (name, of) = self.checked()?;
        let state = self.step(name, &LatchStep::Look).await.map_err(|error| self.error(name, error))?;
        self.still_missing(name, of, state)
    }

    /// Waits until the latch is open. Asks the store at least every half second, and goes on asking while it is
    /// unavailable.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks. Bound it with `tokio::time::timeout`.
    ///
    /// # Errors
    ///
    /// As for [`count_down`](Self::count_down), but never [`Error::Unavailable`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn wait(&self) -> Result<(), Error> {
        let (name, of) = self.checked()?;
        tokio::select! {
            biased;
            () = self.client.closing.cancelled() => Err(self.client.closed_error()),
            opened = self.opened(name, of) => opened,
        }
    }

    async fn opened(&self, name: &Name, of: NonZeroU32) -> Result<(), Error> {
        let (first, longest) = PAUSES;
        // backon's jitter adds up to the whole delay, so this asks for half the delay.
        let growing =
            ExponentialBuilder::new().with_factor(1.5).with_min_delay(first / 2).with_max_delay(longest / 2);
        let mut looks = growing.with_jitter().without_max_times().build();
        let mut failures = Pauses::new();
        loop {
            match self.step(name, &LatchStep::Look).await {
                Ok(state) if self.still_missing(name, of, state)? == 0 => return Ok(()),
                Ok(_) => tokio::time::sleep(looks.next().unwrap_or(longest)).await,
                Err(error) if error.is_unavailable() => {
                    tracing::warn!(lock.name = %name, lock.store = %self.client.store.name, %error, "the store is unavailable; checking the latch again");
                    failures.pause().await;
                }
                Err(error) => return Err(self.error(name, error)),
            }
        }
    }

    /// Removes the latch and its count, whether it is open or closed. Does nothing if there is none. Waiters go on
    /// waiting, for a latch that starts from zero.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out. Calling it again is harmless unless a party has counted down meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::Unavailable`], [`Error::Unsupported`], [`Error::Store`], [`Error::Closed`].
    pub async fn remove(&self) -> Result<(), Error> {
        let (name, _) = self.checked()?;
        self.step(name, &LatchStep::Remove).await.map(drop).map_err(|error| self.error(name, error))
    }

    fn checked(&self) -> Result<(&Name, NonZeroU32), Error> {
        let name = self.name.as_ref().map_err(Clone::clone)?;
        let of = NonZeroU32::new(self.parties)
            .ok_or_else(|| Error::invalid_option("parties of a latch", self.parties, "1 to 4294967295"))?;
        self.client.check_open()?;
        let store = &self.client.store;
        let Capabilities { latches, .. } = store.capabilities();
        if latches { Ok((name, of)) } else { Err(store.unsupported(Capability::Latches)) }
    }

    async fn step(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        self.client.store.latch(name, step).await
    }

    /// Refuses to wait for another number of parties than the latch has.
    fn still_missing(&self, name: &Name, of: NonZeroU32, state: LatchState) -> Result<u32, Error> {
        match state.of {
            0 => Ok(of.get()),
            theirs if theirs == of.get() => Ok(state.missing()),
            theirs => {
                let disagree = format!(
                    "the latch has had {theirs} parties since its first count-down, but this client expects {of}; use the \
                     same number in all clients, or remove the latch first"
                );
                Err(self.error(name, StoreError::mismatch(disagree)))
            }
        }
    }

    fn error(&self, name: &Name, error: StoreError) -> Error {
        self.client.store.failed(Operation::AtLatch(name.clone()), error)
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("name", &self.name)
            .field("parties", &self.parties)
            .finish_non_exhaustive()
    }
}
