//! Objects in memory, dated by tokio's clock in whole seconds, with the requests that were sent.

use futures_util::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tenure_core::{Moment, async_trait};

#[derive(Debug)]
pub(crate) struct Counted {
    objects: InMemory,
    start: Moment,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    dates: HashMap<Path, i64>,
    counts: Counts,
    ignores_conditions: bool,
    finds_conflicts: bool,
}

/// How many requests there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) puts: u64,
    pub(crate) gets: u64,
}

impl Counted {
    pub(crate) fn new() -> Self {
        Self { objects: InMemory::new(), start: Moment::now(), state: Mutex::default() }
    }

    /// Objects in a store that takes every put.
    pub(crate) fn without_conditions() -> Self {
        let this = Self::new();
        this.state().ignores_conditions = true;
        this
    }

    /// From now on, puts without a condition meet a conflict, as where another client's put of the object is under way.
    pub(crate) fn find_conflicts(&self) {
        self.state().finds_conflicts = true;
    }

    /// The requests since the last call.
    pub(crate) fn take(&self) -> Counts {
        std::mem::take(&mut self.state().counts)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

#[async_trait]
impl ObjectStore for Counted {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        self.state().counts.puts += 1;
        if self.state().ignores_conditions {
            options.mode = PutMode::Overwrite;
        }
        if self.state().finds_conflicts && options.mode == PutMode::Overwrite {
            let source = "409 Conflict: OperationAborted".into();
            return Err(Error::AlreadyExists { path: path.to_string(), source });
        }
        let put = self.objects.put_opts(path, payload, options).await?;
        let date = 1_700_000_000 + i64::try_from(Moment::now().since(self.start).as_secs()).unwrap();
        self.state().dates.insert(path.clone(), date);
        Ok(put)
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.state().counts.gets += 1;
        let mut got = self.objects.get_opts(path, options).await?;
        let date = self.state().dates[path];
        got.meta.last_modified = chrono::DateTime::from_timestamp_secs(date).unwrap();
        Ok(got)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("tenure sends no such request")
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        paths.map(|_| unreachable!("tenure sends no such request")).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("tenure sends no such request")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("tenure sends no such request")
    }
}
