//! Locks for programs without async: each call blocks its thread until it is done.
//!
//! ```
//! # fn main() -> Result<(), tenure::Error> {
//! use std::time::Duration;
//!
//! let locks = tenure::blocking::connect("memory:")?;
//!
//! let guard = locks.lock("orders/42").wait(Duration::from_secs(5)).acquire()?;
//! println!("writing with token {}", guard.token());
//! guard.release()?; // dropping the guard releases too, and waits until it is done
//! # Ok(())
//! # }
//! ```
//!
//! Names, options and errors are those of the async types, which do the work: on a thread of their own, started by
//! [`connect`] or [`Locks::new`] and gone with the last handle. Leases are renewed in the background, as always.
//!
//! A call may be made anywhere, even on a thread of a tokio runtime. It never panics there, but it keeps that thread
//! from its other tasks; async code should call the async types, or these within `tokio::task::spawn_blocking`.
//!
//! A blocking call cannot be cancelled. Give [`Lock::wait`] a limit if it must end.
//!
//! | you look for | it is in |
//! |---|---|
//! | opening a store, and everything that is made from it | [`connect`], [`Locks`] |
//! | one lock: exclusive, a reader's, a writer's, permits | [`Lock`], [`Guard`] |
//! | several locks, all or none | [`LockSet`], [`LockSetGuard`] |
//! | elections and latches | [`Election`], [`Latch`] |

mod caller;
mod election;
mod guard;
mod latch;
mod lock;
mod lock_set;
mod locks;

pub use election::Election;
pub use guard::Guard;
pub use latch::Latch;
pub use lock::{Lock, RwLock, Semaphore};
pub use lock_set::{LockSet, LockSetGuard};
pub use locks::{Locks, connect};
