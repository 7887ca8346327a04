//! The types that programs use: locks, options, elections. `policy/guard` and `policy/hold` define the guard and the
//! hold that an acquisition returns.
//!
//! Each row uses only those below it:
//!
//! | file | what is in it |
//! |---|---|
//! | `locks` | the client of a store |
//! | `election`, `latch` | a leader; a wait for several parties |
//! | `lock_set` | several names at once |
//! | `run` | work that ends with its lock |
//! | `rw_lock`, `semaphore` | locks with several holders |
//! | `lock` | a lock and its options |

mod election;
mod latch;
mod lock;
mod lock_set;
mod locks;
mod run;
mod rw_lock;
mod semaphore;

pub use election::Election;
pub use latch::Latch;
pub use lock::Lock;
pub use lock_set::{LockSet, LockSetGuard};
pub use locks::Locks;
pub use run::{HeldStream, counting};
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
