//! The bucket as a store of records.

use crate::{
    content::{Content, Place, has_no_text},
    errors::{is_missing, meaning},
    options::{ObjectOptions, Values},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{
    Error as Refusal, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion, path::Path,
};
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Background, Error, Moment, StoreError, async_trait,
    record::{DatedClock, RecordStore, StoreTime, Stored},
};
use tokio::time::timeout;

/// Dates are whole seconds.
const RESOLUTION: Duration = Duration::from_secs(1);
/// The longest usual time to put an object, or to put a probe and read it. Slower ones give no reading.
const ROUND_TRIP: Duration = Duration::from_secs(1);
/// How many objects of a list are read at a time.
const READ_AT_ONCE: usize = 16;

/// The objects of a bucket.
pub(crate) struct Objects {
    pub(crate) name: Arc<str>,
    store: Arc<dyn ObjectStore>,
    place: Place,
    clock: DatedClock<String>,
    poll: Duration,
    response_timeout: Duration,
    background: Background,
}

impl Objects {
    /// The objects of this store, whose own name is the default.
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        name: Option<String>,
        options: &ObjectOptions,
        background: Background,
    ) -> Result<Self, Error> {
        let place = options.check()?;
        let name = name.unwrap_or_else(|| store.to_string()).into();
        let Values { clock_skew, poll, response_timeout, .. } = options.values.clone();
        let clock = DatedClock::new(RESOLUTION, clock_skew, ROUND_TRIP);
        Ok(Self { name, store, place, clock, poll, response_timeout, background })
    }

    /// Checks that the store serves these objects, and refuses puts whose condition is not met. Reads its clock.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let probe = self.place.probe();
        let stale = self.overwrite(&probe).await?;
        if stale.e_tag.is_none() && stale.version.is_none() {
            return Err(StoreError::failed(
                "the store tells no ETag of a put, so a condition can name no version",
            ));
        }
        self.clock.timed(|| async { Ok(()) }, || self.probe()).await?;
        for mode in [PutMode::Create, PutMode::Update(stale)] {
            if self.put(&probe, &Content::new(None), mode).await?.is_some() {
                return Err(StoreError::failed(
                    "the store ignores the conditions of puts (If-None-Match, If-Match), so it cannot keep locks: use one \
                     that heeds them",
                ));
            }
        }
        Ok(())
    }

    async fn ask<T>(
        &self,
        request: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<Result<T, Refusal>, StoreError> {
        let silence = |_| StoreError::unavailable(format!("no answer within {:?}", self.response_timeout));
        timeout(self.response_timeout, request).await.map_err(silence)
    }

    /// Returns the new version; `None` if the condition is not met.
    async fn put(
        &self,
        path: &Path,
        content: &Content,
        mode: PutMode,
    ) -> Result<Option<UpdateVersion>, StoreError> {
        match self.ask(self.store.put_opts(path, content.write().into(), mode.into())).await? {
            Ok(put) => Ok(Some(put.into())),
            Err(Refusal::AlreadyExists { .. } | Refusal::Precondition { .. }) => Ok(None),
            Err(refusal) => Err(meaning(&refusal)),
        }
    }

    /// Puts a nonce without a condition.
    async fn overwrite(&self, path: &Path) -> Result<UpdateVersion, StoreError> {
        let put = self.put(path, &Content::new(None), PutMode::Overwrite).await?;
        put.ok_or_else(|| StoreError::unavailable("a put without a condition met a conflict"))
    }

    async fn get(&self, path: &Path) -> Result<Option<(Content, ObjectMeta)>, StoreError> {
        let get = async {
            let found = self.store.get(path).await?;
            let meta = found.meta.clone();
            let bytes = if is_too_large(&meta) { None } else { Some(found.bytes().await?) };
            Ok((bytes, meta))
        };
        match self.ask(get).await? {
            Ok((None, meta)) => Err(StoreError::failed(format!(
                "{} has {} bytes, so another program put it: choose another prefix, or move it",
                meta.location, meta.size
            ))),
            Ok((Some(bytes), meta)) => {
                // An unreadable record hides no other.
                let content = Content::read(&String::from_utf8_lossy(&bytes));
                self.clock.saw(&content.nonce, date(&meta));
                Ok(Some((content, meta)))
            }
            Err(refusal) if is_missing(&refusal) => Ok(None),
            Err(refusal) => Err(meaning(&refusal)),
        }
    }

    /// Any later probe of another client does as well.
    async fn probe(&self) -> Result<StoreTime, StoreError> {
        let path = self.place.probe();
        self.overwrite(&path).await?;
        let found = self.get(&path).await?;
        found.map(|(_, meta)| date(&meta)).ok_or_else(|| StoreError::unavailable("an object has vanished"))
    }

    /// Each object as it was when it was read.
    async fn all(&self, prefix: &str) -> Result<Vec<(String, Content, ObjectMeta)>, StoreError> {
        let (mut listed, mut keys) = (self.store.list(Some(&self.place.above(prefix))), Vec::new());
        while let Some(meta) = self.ask(listed.try_next()).await?.map_err(|refusal| meaning(&refusal))? {
            let key = self.place.key(&meta.location).filter(|key| key.starts_with(prefix));
            // An object that no client wrote hides no other.
            keys.extend(key.filter(|_| !has_no_text(meta.size) && !is_too_large(&meta)));
        }
        let read = |key: String| async move {
            let found = self.get(&self.place.path(&key)).await?;
            Ok(found.map(|(content, meta)| (key, content, meta)))
        };
        let found = stream::iter(keys).map(read).buffer_unordered(READ_AT_ONCE);
        found.try_filter_map(|found| async { Ok(found) }).try_collect().await
    }
}

/// Whether an object is larger than any record.
fn is_too_large(meta: &ObjectMeta) -> bool {
    16 << 20 < meta.size
}

fn date(meta: &ObjectMeta) -> StoreTime {
    StoreTime::from_micros(meta.last_modified.timestamp_micros().try_into().unwrap_or(0))
}

fn version(meta: ObjectMeta) -> UpdateVersion {
    UpdateVersion { e_tag: meta.e_tag, version: meta.version }
}

#[async_trait]
impl RecordStore for Objects {
    type Version = Option<UpdateVersion>;

    fn store(&self) -> &str {
        &self.name
    }

    async fn read(&self, key: &str) -> Result<Stored<Self::Version>, StoreError> {
        let path = self.place.path(key);
        let (found, now) = self.clock.timed(|| self.get(&path), || self.probe()).await?;
        let (text, version) =
            found.map_or((None, None), |(content, meta)| (content.text, Some(version(meta))));
        Ok(Stored { text, version, now })
    }

    async fn swap(&self, key: &str, from: &Self::Version, to: Option<&str>) -> Result<bool, StoreError> {
        let (sent, content) = (Moment::now(), Content::new(to));
        let mode = from.clone().map_or(PutMode::Create, PutMode::Update);
        let is_put = self.put(&self.place.path(key), &content, mode).await?.is_some();
        if is_put {
            self.clock.wrote(content.nonce, sent);
        }
        Ok(is_put)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Stored<Self::Version>)>, StoreError> {
        // First, because to read a long list takes longer than a reading of the clock is good for.
        let ((), now) = self.clock.timed(|| async { Ok(()) }, || self.probe()).await?;
        let all = self.all(prefix).await?;
        let stored = |(key, Content { text, .. }, meta)| text.map(|text| (key, text, version(meta)));
        let stored = all.into_iter().filter_map(stored);
        Ok(stored
            .map(|(key, text, from)| (key, Stored { text: Some(text), version: Some(from), now }))
            .collect())
    }

    fn lists_one_instant(&self) -> bool {
        false
    }

    fn ask_again(&self) -> Duration {
        self.poll
    }

    fn margin(&self) -> Duration {
        self.clock.margin()
    }

    fn read_clock_anew(&self) {
        self.clock.forget();
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}
