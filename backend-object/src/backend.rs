//! The backend.

use crate::{errors::NO_CREDENTIALS, http::OnBackground, objects::Objects, options::ObjectOptions};
use object_store::ObjectStore;
use std::{fmt, sync::Arc};
use tenure_core::{
    Background, Error, Operation, StoreError, async_trait, forward_backend,
    record::{RecordStore, Records},
};

/// Locks in a bucket of S3, or of another object store with conditional writes.
///
/// Each name has one object. A client reads it, changes the record in it, and puts it back on the condition that no other
/// client came first. Leases end by the dates of objects; tokens begin with them, too. Waiters of all clients are served
/// in the order in which they came, and ask every [`poll`](ObjectOptions::poll). Cloning is cheap.
///
/// # Examples
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_object::{ObjectBackend, ObjectOptions};
///
/// let locks = Locks::new(ObjectBackend::connect(ObjectOptions::new("locks").region("eu-central-1")).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ObjectBackend(Arc<Records<Objects>>);

impl ObjectBackend {
    /// Opens a bucket of S3, with the credentials of the environment, or of the machine's or the container's role.
    ///
    /// Puts an object four times to see that the bucket is there, and that it refuses puts whose condition is not met.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it acquires no lock.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before anything is sent; [`Error::Unavailable`] if there was no answer in time, or the
    /// store has too much to do; [`Error::Store`] if it refuses the credentials or the bucket, or ignores conditions.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn connect(options: ObjectOptions) -> Result<Self, Error> {
        Ok(Self(Arc::new(Records::new(Self::in_s3(options).await?))))
    }

    /// Uses an object store that the program has made: of Google, of Azure, or of S3 with other settings.
    ///
    /// Bucket, region, endpoint and `connect_timeout` of the options are not used. Turn the retries of the object store off
    /// (`RetryConfig { max_retries: 0, .. }`): a conditional put that is sent again fails because of itself. Its requests
    /// run where they are called, so a runtime that ends may break its connections.
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Panics
    ///
    /// As for [`connect`](Self::connect).
    pub async fn connect_with(store: Arc<dyn ObjectStore>, options: ObjectOptions) -> Result<Self, Error> {
        let objects = Objects::new(store, None, &options, Background::new())?;
        Ok(Self(Arc::new(Records::new(Self::open(objects).await?))))
    }

    /// The bucket alone, for the suite.
    #[doc(hidden)]
    pub async fn records(options: ObjectOptions) -> Result<impl RecordStore, Error> {
        Self::in_s3(options).await
    }

    async fn in_s3(options: ObjectOptions) -> Result<Objects, Error> {
        let background = Background::new();
        let (store, name) = options.s3(OnBackground(background.clone()))?;
        Self::open(Objects::new(store, Some(name), &options, background)?).await
    }

    async fn open(objects: Objects) -> Result<Objects, Error> {
        let failed = |error: StoreError| {
            let text = error.to_string();
            let error = if text.ends_with(NO_CREDENTIALS) { StoreError::failed(text) } else { error };
            Error::from_store(&objects.name, Operation::Connecting, error)
        };
        objects.check().await.map_err(failed)?;
        Ok(objects)
    }
}

impl fmt::Debug for ObjectBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectBackend").field(&tenure_core::Backend::store(&*self.0)).finish()
    }
}

#[async_trait]
impl tenure_core::Backend for ObjectBackend {
    forward_backend!(self => self.0);
}
