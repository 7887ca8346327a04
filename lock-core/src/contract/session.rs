//! Grants that last as long as a session or a connection.

use crate::contract::{LossCause, Moment, lease};
use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// The store's side of a session. A backend makes one per connection or ensemble session, and keeps it up to date.
///
/// A server may end a session before the client hears of it, so a session also has its own deadline: the last answered
/// [heartbeat](Self::proven) plus the timeout, less the drift allowance. After it, nothing in the session is held.
///
/// Clones are the same session.
#[derive(Clone)]
pub struct Session(Arc<Shared>);

struct Shared {
    timeout: Duration,
    deadline: Mutex<Moment>,
    ended: CancellationToken,
    cause: OnceLock<LossCause>,
}

impl Session {
    /// Makes a session that the server ends when it hears nothing for `timeout`. `sent` is the instant before the
    /// request that opened it was sent.
    #[must_use]
    pub fn new(timeout: Duration, sent: Moment) -> Self {
        Self(Arc::new(Shared {
            timeout,
            deadline: Mutex::new(lease::deadline(sent, timeout)),
            ended: CancellationToken::new(),
            cause: OnceLock::new(),
        }))
    }

    /// Records that the server answered a request sent at `sent`. Does nothing once the session has ended.
    ///
    /// A session whose deadline has passed stays ended: a late answer revives nothing (clause L5).
    pub fn proven(&self, sent: Moment) {
        let mut deadline = self.0.deadline();
        if deadline.has_passed() {
            drop(deadline);
            self.end(LossCause::SessionEnded);
            return;
        }
        *deadline = (*deadline).max(lease::deadline(sent, self.0.timeout));
    }

    /// Ends the session. Every grant in it is lost with this cause; the first cause stays.
    pub fn end(&self, cause: LossCause) {
        let _ = self.0.cause.set(cause);
        self.0.ended.cancel();
    }

    /// Returns whether the session is alive.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.0.ended.is_cancelled() && !self.0.deadline().has_passed()
    }

    /// Returns a handle for one grant in this session.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        Liveness(Arc::new(Watched {
            session: Arc::clone(&self.0),
            ended: self.0.ended.child_token(),
            cause: OnceLock::new(),
        }))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("timeout", &self.0.timeout)
            .field("alive", &self.is_alive())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn deadline(&self) -> std::sync::MutexGuard<'_, Moment> {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one grant of a session store is alive. It ends with its session, or by [`end`](Self::end).
///
/// Clones are the same handle.
#[derive(Clone)]
pub struct Liveness(Arc<Watched>);

struct Watched {
    session: Arc<Shared>,
    ended: CancellationToken,
    cause: OnceLock<LossCause>,
}

impl Liveness {
    /// Ends this grant only, for instance because its node was deleted. The first cause stays.
    pub fn end(&self, cause: LossCause) {
        let _ = self.0.cause.set(cause);
        self.0.ended.cancel();
    }

    /// Returns until when the holder may rely on the grant if nothing more is heard from the server.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        *self.0.session.deadline()
    }

    /// Returns why the grant ended; `None` while it is alive.
    #[must_use]
    pub fn loss(&self) -> Option<LossCause> {
        if self.0.ended.is_cancelled() {
            let own = self.0.cause.get().or_else(|| self.0.session.cause.get());
            return Some(own.copied().unwrap_or(LossCause::SessionEnded));
        }
        self.deadline().has_passed().then_some(LossCause::SessionEnded)
    }

    /// Waits until the grant has ended, and returns why.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ended(&self) -> LossCause {
        loop {
            if let Some(cause) = self.loss() {
                return cause;
            }
            let deadline = self.deadline();
            tokio::select! {
                biased;
                () = self.0.ended.cancelled() => {}
                () = deadline.reached() => {}
            }
        }
    }
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Liveness").field(&self.loss()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn silent_session_ends_despite_a_late_answer() {
        let session = Session::new(TIMEOUT, Moment::now());
        let grant = session.liveness();
        tokio::time::sleep(Duration::from_secs(5)).await;
        session.proven(Moment::now());
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(grant.loss(), None);
        assert_eq!(grant.ended().await, LossCause::SessionEnded);
        session.proven(Moment::now());
        assert_eq!(grant.loss(), Some(LossCause::SessionEnded));
        assert!(!session.is_alive());
    }

    #[tokio::test(start_paused = true)]
    async fn ended_grant_leaves_its_session_alive() {
        let session = Session::new(TIMEOUT, Moment::now());
        let (one, other) = (session.liveness(), session.liveness());
        one.end(LossCause::Forced);
        assert_eq!(one.ended().await, LossCause::Forced);
        assert_eq!(other.loss(), None);
        session.end(LossCause::SessionEnded);
        assert_eq!(other.ended().await, LossCause::SessionEnded);
        assert_eq!(one.loss(), Some(LossCause::Forced));
    }
}
