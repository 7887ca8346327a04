//! The policy that all stores share: waiting, re-entry, renewal, loss, release, cancellation.
//!
//! Each file uses only those below it:
//!
//! | file | what is in it |
//! |---|---|
//! | `several` | several names in one request |
//! | `acquire` | one name: from the options of a lock to its guard |
//! | `convert` | a guard's downgrade and upgrade |
//! | `guard` | the program's handle, which releases |
//! | `release`, `withdraw` | how a hold ends; how a cancelled claim ends |
//! | `give_way` | how the client that released a name lets others in first |
//! | `chore` | that work in the background |
//! | `extend` | a lease that is extended by hand |
//! | `hold` | the state of a hold, for programs |
//! | `client` | the state that all locks of one client share |
//! | `owned`, `renewal` | which holds may be re-entered; which to renew, and when |
//! | `withdrawals` | withdrawals, repeated if they fail |
//! | `holding` | the state of one grant: held, lost or released; its guards in `holding/guards`, its renewals in `holding/renewals` |
//! | `timing` | its deadline, and when its renewal is due |
//! | `queue` | the queue of this client's tasks for a name |
//! | `succession` | a grant that passes on with the turn |
//! | `look` | the holders that keep a waiter waiting |
//! | `requests` | the requests to the store |
//! | `store` | the store, and its name in messages |
//! | `pauses` | how long to wait after a failure |
//!
//! One `acquire()`:
//!
//! 1. `Lock::acquire` checks the lock's options, which gives an `Acquisition`.
//! 2. It re-enters a hold of the same owner, if there is one (`owned`). Otherwise it takes a seat and waits for its
//!    turn (`queue`).
//! 3. It makes a claim, guarded by an `OpenClaim` (`withdraw`), and asks the backend: once, or repeatedly while the
//!    store is unavailable.
//! 4. `Hold::begin` makes a `Holding` of the grant, with its deadline and the seat. It registers it with `renewal` and,
//!    if it has an owner, with `owned`. Unless it is exclusive, others of this client may then contend.
//! 5. The claim is settled, and the caller has a `Guard`.
//!
//! One `release()`:
//!
//! 1. `Hold::leave` removes one guard from the `Holding`. After the last one, it is no longer renewed or re-entered.
//! 2. If [succession](crate::Locks::with_succession) is on and the next in the queue may have the grant, the turn
//!    passes on with it, and that is all.
//! 3. `Releasing` asks the backend until it answers, or leaves that to `chore` when it is dropped.
//! 4. The seat is dropped, and its turn passes to the next in the queue.

pub(crate) mod acquire;
mod chore;
pub(crate) mod client;
mod convert;
mod extend;
mod give_way;
pub(crate) mod guard;
pub(crate) mod hold;
pub(crate) mod holding;
mod look;
mod owned;
pub(crate) mod pauses;
mod queue;
mod release;
mod renewal;
mod requests;
pub(crate) mod several;
mod store;
pub(crate) mod succession;
mod timing;
mod withdraw;
mod withdrawals;
