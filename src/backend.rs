//! What is beneath [`Locks`](crate::Locks): the trait that a store implements, its words, and stores without `Locks` on
//! top.
//!
//! For code that wraps a store ([`forward_backend`]), to count requests for instance, or that proves one with `tenure-conformance`. Who
//! writes a store of their own may depend on `tenure-core` alone, which has all of this.

pub use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, ClaimId, Conversion, Grant, Holder, HolderInfo,
    LatchState, LatchStep, Liveness, LossCause, Mode, Moment, Name, PerRuntime, Release, Renewal, Session,
    Standing, StoreError, Term, Together, Token, Wakeup, async_trait, forward_backend,
};

use crate::{Error, connect::open as open_url, options, store_url::StoreUrl};
use std::sync::Arc;

/// Opens the store that `url` names, without [`Locks`](crate::Locks) on top.
///
/// As for [`connect`](crate::connect), except that the URL's `lease` is checked but has no effect: leases are chosen
/// above the store, with [`Locks::with_lease`](crate::Locks::with_lease).
///
/// # Cancel safety
///
/// As for [`connect`](crate::connect).
///
/// # Errors
///
/// Those of [`connect`](crate::connect).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let store = tenure::backend::open("memory:").await?;
/// println!("{}: {:?}", store.store(), store.capabilities());
///
/// let (one, other) = (tenure::Locks::new(store.clone()), tenure::Locks::new(store));
/// let guard = one.lock("a").acquire().await?;
/// assert!(other.lock("a").try_acquire().await?.is_none());
/// # Ok(())
/// # }
/// ```
pub async fn open(url: impl AsRef<str>) -> Result<Arc<dyn Backend>, Error> {
    open_url(StoreUrl::parse(url.as_ref())?).await
}

/// The same in another namespace: `namespace` is put behind the URL's own prefix.
///
/// # Cancel safety
///
/// As for [`connect`](crate::connect).
///
/// # Errors
///
/// Those of [`connect`](crate::connect), and [`Error::InvalidOption`] for a prefix that is too long or has control
/// characters.
pub async fn open_in(url: impl AsRef<str>, namespace: &str) -> Result<Arc<dyn Backend>, Error> {
    let mut url = StoreUrl::parse(url.as_ref())?;
    let prefix = url.options.prefix.take().unwrap_or_default() + namespace;
    if !prefix.is_empty() && !options::prefix(&mut url.options, &prefix) {
        let given = format!("{:?}", prefix.chars().take(40).collect::<String>());
        return Err(Error::invalid_option(
            "prefix",
            given,
            "at most 200 bytes of UTF-8 without control characters",
        ));
    }
    open_url(url).await
}
