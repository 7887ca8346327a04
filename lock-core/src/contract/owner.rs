//! Owners, which may re-enter.

use std::{fmt, sync::Arc};

/// An identity that may re-enter what it already holds.
///
/// Re-entrancy is explicit: a lock acquired without an owner excludes every other acquisition, also by its own task.
/// Two acquisitions with the same owner through the same [`Locks`](crate::Locks) share one grant, one token and one
/// lease; the grant is released with the last of their guards. An owner means nothing to another `Locks`.
///
/// Clones are the same owner; [`new`](Self::new) always makes another.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::{Locks, Memory, Owner};
///
/// let locks = Locks::new(Memory::new());
/// let me = Owner::new();
/// let outer = locks.lock("a").owner(&me).acquire().await?;
/// let inner = locks.lock("a").owner(&me).acquire().await?;
/// assert_eq!(outer.token(), inner.token());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Owner(Arc<Identity>);

/// Owners are told apart by its address, so its size must not be zero.
struct Identity {
    _address: u8,
}

impl Owner {
    /// Makes an owner that is equal to its clones and to no other.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Identity { _address: 0 }))
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Owner {}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:p})", Arc::as_ptr(&self.0))
    }
}
