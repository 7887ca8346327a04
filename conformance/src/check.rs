//! How a case reports a broken contract.

use crate::saboteur::Hurt;
use std::{error::Error, fmt, future::Future, panic::Location, time::Duration};
use tenure_core::{Error as LockError, Guard, Lock, LossCause, Moment, Token};
use tokio::task::JoinHandle;

/// The outcome of a case, or of a part of one.
pub type Check<T = ()> = Result<T, Stop>;

/// Why a case stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The contract is broken, or the store does not work: the observation, and its place in the suite.
    Failed(String),
    /// The store lacks this; the case is ignored.
    Lacks(Need),
}

/// A need of a case beyond the required methods of the store's trait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// Grants end with a lease, not with a session: [`Capabilities::standing`](tenure_core::Capabilities::standing).
    Lease,
    /// Grants end with a session: [`Capabilities::standing`](tenure_core::Capabilities::standing).
    Session,
    /// The store serves readers: [`Capabilities::shared`](tenure_core::Capabilities::shared).
    Readers,
    /// The store serves permits: [`Capabilities::permits`](tenure_core::Capabilities::permits).
    Permits,
    /// The store has latches: [`Capabilities::latches`](tenure_core::Capabilities::latches).
    Latches,
    /// Several names are granted in one request: [`Capabilities::together`](tenure_core::Capabilities::together).
    Together,
    /// The store lists its holders: [`Capabilities::listing`](tenure_core::Capabilities::listing).
    Listing,
    /// A grant can reserve tokens: [`Capabilities::succession`](tenure_core::Capabilities::succession).
    Succession,
    /// The store tells waiters of releases: [`Capabilities::wakeup`](tenure_core::Capabilities::wakeup).
    Wakeups,
    /// Clients are served in order: [`Capabilities::fair`](tenure_core::Capabilities::fair).
    Fair,
    /// Another process can reach the store: [`Subject::environment`](crate::Subject::environment).
    Processes,
    /// The store has namespaces: [`Subject::backend_in`](crate::Subject::backend_in).
    Namespaces,
    /// The suite can restart the store: [`Subject::restart`](crate::Subject::restart).
    Restart,
    /// The suite can empty the store: [`Subject::wipe`](crate::Subject::wipe).
    Wipe,
    /// The subject offers a record store: [`Subject::records`](crate::Subject::records).
    Records,
    /// The record store lists its keys as they were at one instant:
    /// [`RecordStore::lists_one_instant`](tenure_core::record::RecordStore::lists_one_instant).
    OneInstant,
    /// The suite can inject this fault into the store's server: [`Subject::saboteur`](crate::Subject::saboteur).
    Hurt(Hurt),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hurt(hurt) => return write!(f, "needs a saboteur that can inject this fault: {hurt}"),
            Self::Lease => "needs leases: this store's grants end with a session",
            Self::Session => "needs a session: this store's grants end with a lease",
            Self::Readers => "needs readers: this store has exclusive locks only",
            Self::Permits => "needs permits: this store has no semaphores",
            Self::Latches => "needs latches: this store has none",
            Self::Together => {
                "needs several names in one request: this store is asked for one name at a time"
            }
            Self::Listing => "needs listing: this store does not list holders",
            Self::Succession => "needs succession: this store's grants reserve no tokens",
            Self::Wakeups => "needs wake-ups: this store's waiters poll",
            Self::Fair => "needs fair: this store does not serve clients in order",
            Self::Processes => "needs processes: no other process can reach this store",
            Self::Namespaces => "needs namespaces: this subject has one only",
            Self::Restart => "needs restart: this subject cannot be restarted",
            Self::Wipe => "needs wipe: this subject cannot be emptied",
            Self::Records => "needs records: this subject offers no record store",
            Self::OneInstant => "needs one instant: this record store lists each key as it is read",
        })
    }
}

impl Stop {
    /// Reports a broken contract: `what` the case observed.
    #[track_caller]
    pub fn failed(what: impl fmt::Display) -> Self {
        Self::failed_at(Location::caller(), what)
    }

    /// Like `failed`, for a future, which knows its caller only while it is made.
    fn failed_at(at: &Location<'_>, what: impl fmt::Display) -> Self {
        Self::Failed(format!("{what} (at {}:{})", at.file(), at.line()))
    }
}

impl<E: Error> From<E> for Stop {
    #[track_caller]
    fn from(error: E) -> Self {
        Self::failed(chain(&error))
    }
}

/// On the wall clock, the limit for the bounds of the contract: only a hanging request takes so long.
const HANG: Duration = Duration::from_mins(5);

/// Returns the limit for a bound of the contract. In virtual time it is the bound itself. On the wall clock, where the
/// machine may stall, it only ends a request that hangs.
pub(crate) fn at_most(bound: Duration) -> Duration {
    if Moment::are_virtual() { bound } else { HANG }
}

/// An error and its causes, in one line.
pub(crate) fn chain(error: &(impl Error + ?Sized)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Stops the case unless the condition holds. A condition that is clear by itself needs no message.
macro_rules! ensure {
    ($condition:expr $(,)?) => {
        $crate::check::ensure!($condition, "expected {}", stringify!($condition))
    };
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::check::Stop::failed(format_args!($($what)+)));
        }
    };
}

/// Stops the case unless both are equal. The right one is expected.
macro_rules! ensure_eq {
    ($left:expr, $right:expr $(,)?) => {
        $crate::check::ensure_eq!($left, $right, "{}", stringify!($left))
    };
    ($left:expr, $right:expr, $($what:tt)+) => {
        match (&$left, &$right) {
            (left, right) => $crate::check::ensure!(left == right, "{}: got {left:?}, expected {right:?}", format_args!($($what)+)),
        }
    };
}

/// Stops the case unless the value matches the pattern, and shows both.
macro_rules! ensure_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        $crate::check::ensure_matches!($value, $pattern $(if $guard)?, "{}", stringify!($value))
    };
    ($value:expr, $pattern:pat $(if $guard:expr)?, $($what:tt)+) => {
        match &$value {
            $pattern $(if $guard)? => {}
            other => return Err($crate::check::Stop::failed(format_args!(
                "{}: got {other:?}, expected {}", format_args!($($what)+), stringify!($pattern)
            ))),
        }
    };
}

/// Stops the case unless the token is greater than the one before it.
#[track_caller]
pub(crate) fn rises(before: impl Into<Option<Token>>, token: Token) -> Check {
    match before.into() {
        Some(before) if before >= token => Err(Stop::failed(format_args!(
            "token {token} was granted after token {before}: each grant needs a greater token"
        ))),
        _ => Ok(()),
    }
}

/// Stops the case if the lock was lost.
#[track_caller]
pub(crate) fn still_held(guard: &Guard) -> Check {
    ensure!(guard.is_held(), "this lock must still be held, but was lost ({:?}): {guard:?}", guard.loss());
    Ok(())
}

/// Returns until when a lock that was just acquired is held.
#[track_caller]
pub(crate) fn deadline(guard: &Guard) -> Check<Moment> {
    match guard.deadline() {
        Some(deadline) => Ok(deadline),
        None => Err(Stop::failed(format_args!("a new guard must have a deadline: {guard:?}"))),
    }
}

/// Stops the case unless something took this long in virtual time, to the millisecond: on a machine that was suspended,
/// each moment has the noise of two clocks.
#[track_caller]
pub(crate) fn took_exactly(took: Duration, expected: Duration, what: impl fmt::Display) -> Check {
    ensure!(
        took.abs_diff(expected) < Duration::from_millis(1),
        "{what}: took {took:?}, expected {expected:?}"
    );
    Ok(())
}

/// How soon after a lease has expired an idle store grants the name to another client (clause L1).
pub(crate) const EXPIRY: Duration = Duration::from_secs(1);

/// Acquires a lock that is free; stops the case if that is refused.
#[track_caller]
pub(crate) fn free_at_once(lock: &Lock) -> impl Future<Output = Check<Guard>> {
    let at = Location::caller();
    async move {
        match lock.try_acquire().await {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => {
                Err(Stop::failed_at(at, format_args!("refused while it is free, expected a grant: {lock:?}")))
            }
            Err(error) => Err(Stop::failed_at(at, chain(&error))),
        }
    }
}

/// Tries to acquire a lock that is held; stops the case if that is granted.
#[track_caller]
pub(crate) fn kept_out(lock: &Lock) -> impl Future<Output = Check> {
    let at = Location::caller();
    async move {
        match lock.try_acquire().await {
            Ok(None) => Ok(()),
            Ok(Some(second)) => Err(Stop::failed_at(
                at,
                format_args!("granted while it is held, expected a refusal: {second:?}"),
            )),
            Err(error) => Err(Stop::failed_at(at, chain(&error))),
        }
    }
}

/// Waits for the lock in a task.
pub(crate) fn waits(lock: Lock) -> JoinHandle<Result<Guard, LockError>> {
    tokio::spawn(async move { lock.acquire().await })
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Acquires the lock, and waits until it is lost for lack of renewals. Also returns how much longer the store may keep
/// it.
///
/// Its lease is cut short only when it is held. One as short from the start would often be over before a busy store's
/// answer, and its lock never granted. If the store does not answer in time either, the longer lease runs out.
pub(crate) async fn expired(lock: Lock) -> Check<(Guard, Duration)> {
    const BRIEF: Duration = Duration::from_millis(300);
    const LONGER: Duration = Duration::from_secs(3);
    let guard = lock.lease(LONGER).renew(false).acquire().await?;
    let rest = match guard.extend(BRIEF).await {
        Ok(()) => BRIEF,
        Err(LockError::Lost { .. } | LockError::Unavailable { .. }) => LONGER + BRIEF,
        Err(error) => return Err(error.into()),
    };
    within(LONGER * 2, "the loss of a lock without renewal", guard.lost()).await?;
    Ok((guard, rest))
}

/// Stops the case unless the future completes in time.
#[track_caller]
pub(crate) fn within<T>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = T>,
) -> impl Future<Output = Check<T>> {
    let late = Stop::failed(format_args!("{what} took longer than {limit:?}"));
    async move { tokio::time::timeout(limit, future).await.map_err(|_| late) }
}

/// Checks again and again until the condition holds; stops the case if it does not within the limit.
macro_rules! eventually {
    ($limit:expr, $condition:expr $(,)?) => {
        $crate::check::eventually!($limit, $condition, "{}", stringify!($condition))
    };
    ($limit:expr, $condition:expr, $($what:tt)+) => {{
        let until = tokio::time::Instant::now() + $limit;
        while !$condition {
            let late = tokio::time::Instant::now() >= until;
            $crate::check::ensure!(!late, "expected within {:?}: {}", $limit, format_args!($($what)+));
            $crate::pause::look_again().await;
        }
    }};
}

/// Returns the cause of the loss if the outcome is one; stops the case otherwise.
#[track_caller]
pub(crate) fn lost_with<T: fmt::Debug>(outcome: Result<T, LockError>) -> Check<LossCause> {
    match outcome {
        Err(LockError::Lost { cause, .. }) => Ok(cause),
        other => {
            Err(Stop::failed(format_args!("the lock was lost, so this must return Err(Lost): got {other:?}")))
        }
    }
}

pub(crate) use {ensure, ensure_eq, ensure_matches, eventually};

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{Locks, Memory};

    fn said<T>(line: u32, outcome: Check<T>) -> String {
        let Err(Stop::Failed(what)) = outcome else { panic!("it did not fail") };
        let at = format!(" (at {}:{line})", file!());
        what.strip_suffix(&at).unwrap_or_else(|| panic!("{what:?} does not end with {at:?}")).to_owned()
    }

    #[test]
    fn condition_is_its_own_message() {
        let (held, tokens) = (false, [1, 2]);
        let untrue = || {
            ensure!(held);
            Check::Ok(())
        };
        assert_eq!(said(line!() - 3, untrue()), "expected held");
        let unequal = || {
            ensure_eq!(tokens.len(), 3);
            Check::Ok(())
        };
        assert_eq!(said(line!() - 3, unequal()), "tokens.len(): got 2, expected 3");
        let unmatched = || {
            ensure_matches!(tokens.first(), None);
            Check::Ok(())
        };
        assert_eq!(said(line!() - 3, unmatched()), "tokens.first(): got Some(1), expected None");
    }

    #[tokio::test]
    async fn failure_names_line_of_check() {
        let locks = Locks::new(Memory::new());
        let granted = said(line!(), kept_out(&locks.lock("a")).await);
        assert!(granted.starts_with("granted while it is held, expected a refusal: Guard("), "{granted}");
        let lock = locks.lock("b");
        let guard = free_at_once(&lock).await.unwrap();
        assert!(
            said(line!(), free_at_once(&lock).await)
                .starts_with("refused while it is free, expected a grant: Lock")
        );
        let token = guard.token();
        let fell = format!("token {token} was granted after token {token}: each grant needs a greater token");
        assert_eq!(said(line!(), rises(token, token)), fell);
    }
}
