//! A gate that opens when all have come.

use crate::{
    Ability, Capabilities, Error, InvalidName, LatchState, LatchStep, Name, Operation, StoreError,
    policy::{client::Client, pauses::Pauses},
};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

/// The first pause between two looks at a latch that is closed, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A latch: closed until each of so many parties has counted down once, and open from then on. Made by
/// [`Locks::latch`](crate::Locks::latch).
///
/// What has been counted is kept in the store without a lease: a party may end, and start again, and counts once all the
/// same, because it is known by its name. All clients must agree on the number of parties; one that disagrees is refused,
/// with both numbers in the error. A latch and a lock of the same name have nothing to do with each other.
///
/// A latch stays, open or closed, until somebody [removes](Self::remove) it. Name it after what it is for, once:
/// `import/2026-11-21`.
///
/// # Examples
///
/// Three machines load their parts of a batch, and the report is written when all have done so:
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

    /// Counts `party` down, and tells how many are still missing. Who has counted down before changes nothing, and neither
    /// does one more than the latch waits for.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out. Calling it again is harmless, since each party counts once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] for the latch or the party; [`Error::InvalidOption`] for a latch of no parties;
    /// [`Error::Mismatch`] when the latch waits for another number of parties; [`Error::Unavailable`], and then whether it
    /// was counted is not known; [`Error::Unsupported`]; [`Error::Closed`].
    pub async fn count_down(&self, party: impl AsRef<str>) -> Result<u32, Error> {
        let (name, of) = self.checked()?;
        let step = LatchStep::CountDown { party: Name::new(party)?, of };
        let state = self.step(name, &step).await.map_err(|error| self.error(name, error))?;
        self.still_missing(name, of, state)
    }

    /// How many parties are still missing: 0 when it is open.
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

    /// Waits until the latch is open; at once if it is. The store is asked again and again, at least every half second,
    /// also while it is unavailable.
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
        // backon's jitter adds up to the delay itself, so half of what is meant is asked for.
        let growing =
            ExponentialBuilder::new().with_factor(1.5).with_min_delay(first / 2).with_max_delay(longest / 2);
        let mut looks = growing.with_jitter().without_max_times().build();
        let mut failures = Pauses::new();
        loop {
            match self.step(name, &LatchStep::Look).await {
                Ok(state) if self.still_missing(name, of, state)? == 0 => return Ok(()),
                Ok(_) => tokio::time::sleep(looks.next().unwrap_or(longest)).await,
                Err(error) if error.is_unavailable() => {
                    tracing::warn!(lock.name = %name, lock.store = %self.client.store.name, %error, "the store is unavailable; the latch is looked at again");
                    failures.pause().await;
                }
                Err(error) => return Err(self.error(name, error)),
            }
        }
    }

    /// Forgets the latch and who has counted down, whether it is open or closed; harmless when there is none. Whoever
    /// waits goes on waiting, for a latch that begins anew.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out. Calling it again is harmless unless somebody has counted down meanwhile.
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
        let Capabilities { latches, .. } = store.backend.capabilities();
        if latches { Ok((name, of)) } else { Err(store.unsupported(Ability::Latches)) }
    }

    async fn step(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        self.client.store.backend.latch(name, step).await
    }

    /// Nobody may wait for another number of parties than those who count down.
    fn still_missing(&self, name: &Name, of: NonZeroU32, state: LatchState) -> Result<u32, Error> {
        match state.of {
            0 => Ok(of.get()),
            theirs if theirs == of.get() => Ok(state.missing()),
            theirs => {
                let disagree = format!(
                    "the latch waits for {theirs} parties, as the first one said who counted down, and for {of} by this \
                     client; all clients must agree, or remove it first"
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
