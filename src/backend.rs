//! The layer beneath [`Locks`](crate::Locks): the trait that a store implements, its types, and stores without `Locks`
//! on top.
//!
//! For code that wraps a store ([`forward_backend`]), for instance to count requests, or that proves one with
//! `tenure-conformance`. A store of your own can depend on `tenure-core` alone, which has all of this.

pub use tenure_core::{
    Attempt, AttemptAll, Backend, Background, Capabilities, Capability, Claim, ClaimId, Conversion, Epoch,
    Grant, Holder, HolderInfo, LatchState, LatchStep, Liveness, LossCause, Mode, Moment, Name, PerRuntime,
    Release, Renewal, Session, Standing, StandingKind, StoreError, Token, Waiter, Wakeup, async_trait,
    forward_backend,
};

use crate::{
    Error,
    stores::{default_of, opening},
};
use std::sync::Arc;
use tenure_core::url::encode;

/// Opens the store that `url` names, without [`Locks`](crate::Locks) on top.
///
/// Works like [`connect`](crate::connect), except that the URL's `lease` and `succession` are checked but have no
/// effect: they are chosen above the store, with [`Locks::with_lease`](crate::Locks::with_lease) and
/// [`Locks::with_succession`](crate::Locks::with_succession).
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
    opening(url.as_ref())?.await
}

/// Opens the same store in another namespace: `namespace` is appended to the URL's own prefix, which is the store's
/// default if the URL names none.
///
/// # Cancel safety
///
/// As for [`connect`](crate::connect).
///
/// # Errors
///
/// Those of [`connect`](crate::connect), which may be about the prefix too, and [`Error::InvalidOption`] for one that is
/// too long or contains control characters.
pub async fn open_in(url: impl AsRef<str>, namespace: &str) -> Result<Arc<dyn Backend>, Error> {
    let url = url.as_ref();
    drop(opening(url)?);
    let wrong = |_| {
        let given = Error::excerpt(namespace);
        let allowed = "at most 200 bytes of UTF-8 without control characters, including the URL's own prefix";
        Error::invalid_option("prefix", given, allowed)
    };
    opening(&within(url, namespace)).map_err(wrong)?.await
}

/// The URL with `namespace` appended to its own prefix, or to the default.
fn within(url: &str, namespace: &str) -> String {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let mut pairs: Vec<String> =
        query.split('&').filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
    let own = pairs.iter().position(|pair| pair.starts_with("prefix="));
    match own {
        _ if namespace.is_empty() => return url.to_owned(),
        Some(at) => pairs[at] += &encode(namespace),
        None => {
            let default = default_of(url, "prefix").filter(|default| *default != "none").unwrap_or_default();
            pairs.push(format!("prefix={}{}", encode(default), encode(namespace)));
        }
    }
    format!("{place}?{}", pairs.join("&"))
}

#[cfg(all(test, feature = "redis", feature = "sqlite", feature = "zookeeper"))]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_within_the_urls_own_or_the_default() {
        let cases = [
            ("redis://host", "redis://host?prefix=tenure%3Ax%2F"),
            ("redlock://a,b,c?lease=5s", "redlock://a,b,c?lease=5s&prefix=tenure%3Ax%2F"),
            ("redis://host?prefix=ci&lease=5s", "redis://host?prefix=cix%2F&lease=5s"),
            ("zookeeper://host", "zookeeper://host?prefix=%2Ftenurex%2F"),
            ("sqlite:locks.db", "sqlite:locks.db?prefix=x%2F"),
        ];
        for (url, expected) in cases {
            assert_eq!(within(url, "x/"), expected);
            assert_eq!(within(url, ""), url);
        }
    }
}
