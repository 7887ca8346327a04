//! A record store that hides the type of its versions, so that cases work on any store.

use std::{any::Any, fmt, sync::Arc, time::Duration};
use tenure_core::{
    StoreError, async_trait,
    record::{RecordStore, Stored},
};

/// A client of any [`RecordStore`], which hides its [`Version`](RecordStore::Version), for
/// [`Subject::records`](crate::Subject::records).
///
/// # Examples
///
/// ```
/// # use tenure_conformance::{AnyRecordStore, BoxError};
/// # use tenure_core::record::RecordStore;
/// # fn records(store: impl RecordStore) -> Result<Option<AnyRecordStore>, BoxError> {
/// Ok(Some(AnyRecordStore::new(store)))
/// # }
/// ```
#[derive(Clone)]
pub struct AnyRecordStore(pub(crate) RecordClient);

/// A client of a record store.
pub(crate) type RecordClient = Arc<dyn RecordStore<Version = AnyVersion>>;

/// A version of the store's own type.
#[derive(Clone)]
pub(crate) struct AnyVersion(Arc<dyn Any + Send + Sync>);

impl AnyRecordStore {
    /// Hides the type of the store's versions.
    pub fn new(store: impl RecordStore) -> Self {
        Self(Arc::new(Erased(store)))
    }
}

impl fmt::Debug for AnyRecordStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyRecordStore").field(&self.0.store()).finish()
    }
}

struct Erased<S>(S);

/// An error, and the request that failed.
#[derive(Debug, thiserror::Error)]
#[error("`{request}` failed")]
struct Failed {
    request: &'static str,
    source: StoreError,
}

fn failed(request: &'static str) -> impl FnOnce(StoreError) -> StoreError {
    move |source| {
        let is_unavailable = source.is_unavailable();
        let failed = Failed { request, source };
        if is_unavailable { StoreError::unavailable(failed) } else { StoreError::failed(failed) }
    }
}

impl<S: RecordStore> Erased<S> {
    fn stored(stored: Stored<S::Version>) -> Stored<AnyVersion> {
        let Stored { text, version, now } = stored;
        Stored { text, version: AnyVersion(Arc::new(version)), now }
    }

    fn version(version: &AnyVersion) -> Result<&S::Version, StoreError> {
        version.0.downcast_ref().ok_or_else(|| StoreError::failed("a version of another kind of store"))
    }
}

#[async_trait]
impl<S: RecordStore> RecordStore for Erased<S> {
    type Version = AnyVersion;

    fn store(&self) -> &str {
        self.0.store()
    }

    async fn read(&self, key: &str) -> Result<Stored<AnyVersion>, StoreError> {
        self.0.read(key).await.map(Self::stored).map_err(failed("read"))
    }

    async fn swap(&self, key: &str, from: &AnyVersion, to: Option<&str>) -> Result<bool, StoreError> {
        self.0.swap(key, Self::version(from)?, to).await.map_err(failed("swap"))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Stored<AnyVersion>)>, StoreError> {
        let listed = self.0.list(prefix).await.map_err(failed("list"))?;
        Ok(listed.into_iter().map(|(key, stored)| (key, Self::stored(stored))).collect())
    }

    async fn changed(&self, key: &str, from: &AnyVersion, at_most: Duration) -> Result<(), StoreError> {
        self.0.changed(key, Self::version(from)?, at_most).await.map_err(failed("changed"))
    }

    fn lists_one_instant(&self) -> bool {
        self.0.lists_one_instant()
    }

    fn tells_of_changes(&self) -> bool {
        self.0.tells_of_changes()
    }

    fn margin(&self) -> Duration {
        self.0.margin()
    }

    fn read_clock_anew(&self) {
        self.0.read_clock_anew();
    }

    async fn close(&self) {
        self.0.close().await;
    }
}
