//! From a URL to locks.

use crate::stores::opening;
use tenure_core::{Error, Locks, url::lease};

/// Opens the store that `url` names, and gives its locks.
///
/// The URL is checked whole before anything is opened: its scheme, its path or host, and every parameter. The schemes
/// and parameters are listed in [`urls`](crate::urls) and in `docs/urls.md`.
///
/// `memory:` is a fresh private store at each call; hand out clones of one [`Locks`] to share it. `sqlite:` takes a
/// relative path (`sqlite:locks.db`) or an absolute one (`sqlite:/var/lib/app/locks.db`, also after `sqlite://`), in
/// which `%XX` is decoded and `~` is not expanded.
///
/// # Cancel safety
///
/// Cancel safe: no lock is taken. The store's table may have been made.
///
/// # Errors
///
/// [`Error::InvalidUrl`] for a URL that is not understood, or whose store is not built in, with what would be valid
/// and without passwords. [`Error::Unavailable`] and [`Error::Store`] when the store cannot be opened.
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
    let (store, lease) = (opening(url)?, lease(url)?);
    Locks::with_lease(store.await?, lease)
}
