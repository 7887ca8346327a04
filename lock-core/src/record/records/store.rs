//! The requests of a store that keeps records.

use crate::{
    contract::{Capabilities, StoreError},
    record::StoreTime,
    store::Background,
};
use async_trait::async_trait;
use std::time::Duration;

/// A store of small texts with compare-and-swap, which [`Records`](super::Records) turns into a store of locks.
///
/// Three requests are required. Files of one machine, a table with a version column, and stores that date what is written
/// can serve them: NATS and object stores, with a [`DatedClock`](super::super::DatedClock). etcd and Consul cannot: they
/// tell no time. The store for etcd is therefore a [`Backend`](crate::Backend). None of the requests needs to understand
/// the texts.
///
/// # Behaviour that every request guarantees
///
/// - **Dropped at any await.** A request that is on its way may still be carried out later. If the key has been written
///   since, it meets a different version and changes nothing.
/// - **Bounded.** A request ends within the store's own timeouts, which are 10 s or less, even if the server is silent.
/// - **An error is an error.** A request that fails never answers `false`, an absent key or an empty list.
/// - **The latest.** A read sees every swap that was answered before the read was sent. If the store may answer from a
///   replica or a cache, the read must ask it not to.
/// - **The store's time** is one clock for all clients, in units much smaller than the shortest lease, or behind such a
///   clock by less than the client's [`margin`](Self::margin). A store without a clock needs one beside it; each client's
///   own will not do, unless all are on one machine.
/// - **Keys.** A key is any text of up to 300 bytes without control characters. No two keys are the same, however alike
///   they look.
/// - **Texts.** A text comes back as it was written. It has a few hundred bytes, and as many more for each client that
///   holds the name or waits for it: 30,000 bytes in all are enough.
/// - **From any runtime**, as for a [`Backend`](crate::Backend).
#[async_trait]
pub trait RecordStore: Send + Sync + 'static {
    /// The version of a key's content, different for each: a revision number that the store keeps, or the text itself.
    ///
    /// `Records` never writes the same text under a key twice, so the text itself is enough.
    type Version: Clone + Send + Sync + 'static;

    /// A description of the store for errors, logs and people. It must never contain a password.
    fn store(&self) -> &str;

    /// Returns the content of `key` now, and the store's time.
    ///
    /// # Errors
    ///
    /// [`StoreError::unavailable`] if the store could not be asked or did not answer, [`StoreError::failed`] if asking
    /// again will not help.
    async fn read(&self, key: &str) -> Result<Stored<Self::Version>, StoreError>;

    /// Puts `to` under `key`, or removes the key, if its version is still `from`. Returns whether it was.
    ///
    /// `true` says that this swap was carried out, and `false` that it was not. So send a swap only once. If the client
    /// library sends it again by itself when an answer is lost, turn that off: the second attempt would meet the first
    /// one's text, and answer `false`. Return an error instead. `Records` recognises its own text, and its own release
    /// even after others have written. But a forced release that is repeated may end a newer grant, and a repeated
    /// removal of a latch may remove a newer one.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read). The swap may have been carried out all the same.
    async fn swap(&self, key: &str, from: &Self::Version, to: Option<&str>) -> Result<bool, StoreError>;

    /// Returns every key that begins with `prefix`, in any order, each exactly once, as they all were at one instant,
    /// unless the store [cannot](Self::lists_one_instant).
    ///
    /// If the store answers in pages, read them all, at one revision or in one transaction. Take `prefix` literally: it
    /// is no pattern.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    async fn list(&self, prefix: &str) -> Result<Vec<(String, Stored<Self::Version>)>, StoreError>;

    /// Waits until the version of `key` is no longer `from`, but never longer than `at_most`.
    ///
    /// The default waits for `at_most`. A hint is enough: the caller reads again in any case. But do not always return
    /// at once, or waiters ask without a pause. The key may have changed since `from` was read: watch from that
    /// version, not from now.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    async fn changed(&self, key: &str, from: &Self::Version, at_most: Duration) -> Result<(), StoreError> {
        let _ = (key, from);
        tokio::time::sleep(at_most).await;
        Ok(())
    }

    /// Whether [`list`](Self::list) returns all keys as they were at one instant. The default is yes. A store without
    /// revisions or transactions, such as an object store, returns each as it was at some instant during the request.
    fn lists_one_instant(&self) -> bool {
        true
    }

    /// Whether [`changed`](Self::changed) returns when the key changes. The default is no.
    fn tells_of_changes(&self) -> bool {
        false
    }

    /// How long a waiter goes without reading again. The default is a second if the store
    /// [tells of changes](Self::tells_of_changes), and 50 ms if it does not.
    ///
    /// A waiter's place in the queue lasts three times as long, and 3 s at least. So a dead waiter delays the others by as
    /// much, and by up to two [margins](Self::margin).
    fn ask_again(&self) -> Duration {
        if self.tells_of_changes() { Duration::from_secs(1) } else { Capabilities::POLLED.ask_again }
    }

    /// How far the time in its answers may be behind the store's clock. The default is zero.
    ///
    /// `Records` adds it to each lease. So no client's time reaches the end of a lease too early, even if the clients'
    /// margins differ. The lock of a dead client is free later, by up to that client's margin and the next client's.
    fn margin(&self) -> Duration {
        Duration::ZERO
    }

    /// Tells the time of the next answers by a new reading of the store's clock.
    ///
    /// `Records` asks for that before it relies on the end of a lease. The default does nothing, because a store with a
    /// clock reads it for each answer.
    fn read_clock_anew(&self) {}

    /// Where renewal runs: see [`Backend::background`](crate::Backend::background).
    fn background(&self) -> Background {
        Background::new()
    }

    /// Closes the store's connections.
    async fn close(&self) {}
}

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<V> {
    /// The text, or `None` if there is no such key.
    pub text: Option<String>,
    /// The version of the text, or of its absence.
    pub version: V,
    /// The store's time, taken after the request was sent and before the answer left, or behind that by less than
    /// [`RecordStore::margin`].
    pub now: StoreTime,
}
