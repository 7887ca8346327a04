//! From a URL to locks.

use crate::stores::opening;
use tenure_core::{
    Error, Locks,
    url::{lease, succession},
};

/// Opens the store that `url` names, and returns its locks.
///
/// The whole URL is checked before anything is opened: its scheme, its path or host, and every parameter. Only whether
/// the store supports [succession](Locks::with_succession) is checked once it is open. [`urls`](crate::urls) and
/// `docs/urls.md` list the schemes and parameters.
///
/// `memory:` is a new private store at each call; to share it, hand out clones of one [`Locks`]. `sqlite:` takes a
/// relative path (`sqlite:locks.db`) or an absolute one (`sqlite:/var/lib/app/locks.db`, also after `sqlite://`); `%XX`
/// in it is decoded and `~` is not expanded.
///
/// # Cancel safety
///
/// Cancel safe: no lock is acquired. The store's table may have been created.
///
/// # Errors
///
/// [`Error::InvalidUrl`] for an invalid URL, or one whose store is not built in, with what would be valid and without
/// passwords. [`Error::Unavailable`] and [`Error::Store`] if the store cannot be opened. [`Error::Unsupported`] if it
/// does not support the `succession` that the URL turns on.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let locks = tenure::connect("memory:?lease=10s").await?;
/// locks.lock("report").run(|hold| async move { println!("token {}", hold.token()) }).await?;
///
/// let error = tenure::connect("memory:?leese=10s").await.unwrap_err();
/// assert!(error.to_string().contains("unknown parameter \"leese\""));
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: impl AsRef<str>) -> Result<Locks, Error> {
    let url = url.as_ref();
    let (store, lease, successors) = (opening(url)?, lease(url)?, succession(url)?);
    let locks = Locks::with_lease(store.await?, lease)?;
    match locks.clone().with_succession(successors) {
        Ok(locks) => Ok(locks),
        Err(refused) => {
            locks.close().await;
            Err(refused)
        }
    }
}
