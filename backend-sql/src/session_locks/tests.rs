//! A lock after a long silence, and the cause of a loss.

use super::issue::Issue;
use super::*;
use std::{future::pending, mem::take, sync::Mutex};
use tenure_core::{Locks, Token};
use tokio::time::{Instant, sleep};

/// A firewall forgets a connection that was idle for this long.
const FORGOTTEN: Duration = Duration::from_mins(4);

/// A table behind a firewall that drops packets of connections that it has forgotten. It notes what it is asked for.
#[derive(Clone, Default)]
struct Behind {
    asked: Arc<Mutex<Vec<&'static str>>>,
    /// It ends sessions by force, and takes so long to say so.
    forces: Option<Duration>,
}

impl Behind {
    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }

    async fn pass(&self, last: &mut Instant, what: &'static str) {
        self.note(what);
        if last.elapsed() >= FORGOTTEN {
            pending::<()>().await;
        }
        *last = Instant::now();
    }
}

/// The requests that a try at a free row does not make.
macro_rules! unasked {
    ($($name:ident($($argument:ty),*) -> $answer:ty),+ $(,)?) => {
        $(async fn $name(&self, $(_: $argument),*) -> Result<$answer, StoreError> {
            unreachable!(stringify!($name))
        })+
    };
}

impl SessionRequests for Behind {
    /// When its last packet passed.
    type Connection = Instant;

    fn store(&self) -> &'static str {
        "a table behind a firewall"
    }

    fn fair(&self) -> bool {
        true
    }

    fn connections(&self) -> usize {
        2
    }

    fn response_timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn connect(&self) -> Result<Instant, StoreError> {
        self.note("connect");
        Ok(Instant::now())
    }

    async fn take(&self, last: &mut Instant, _: &Claim, _: bool) -> Result<Found<Issue>, StoreError> {
        self.pass(last, "take").await;
        Ok(Found::Locked(Issue { last: Some(1), now: 2, after: 0, writable: true }))
    }

    async fn beat(&self, last: &mut Instant, _: Option<&Claim>) -> Result<(), StoreError> {
        self.pass(last, "beat").await;
        if self.forces.is_some() { Err(StoreError::unavailable("the session has ended")) } else { Ok(()) }
    }

    async fn end(&self, last: &mut Instant) -> Result<(), StoreError> {
        self.pass(last, "end").await;
        Ok(())
    }

    async fn note(&self, _: &Claim, _: Token) -> Result<bool, StoreError> {
        Ok(true)
    }

    unasked!(
        lock(&mut Instant, &Name, bool) -> Found<()>,
        make(&Name) -> bool,
        is_unnoted(&str, Option<&str>) -> bool,
        lives(ClaimId) -> bool,
        interrupt(ClaimId) -> (),
        holders(&Name) -> Vec<Holder>,
        list(&str, Option<&str>) -> Vec<Holder>,
        force(&Name) -> Vec<Holder>,
    );

    async fn was_forced(&self, _: &Grant) -> Result<bool, StoreError> {
        sleep(self.forces.unwrap_or_default()).await;
        Ok(self.forces.is_some())
    }

    async fn open(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_replaced_if_firewall_dropped_it() {
    let table = Behind::default();
    let locks = Locks::new(SessionLocks::open(table.clone(), Background::new()).await.unwrap());
    let asked_after = async |silence: Duration| {
        sleep(silence).await;
        // A try that waited for the response timeout would come too late.
        let lock = locks.lock("a").lease(Duration::from_secs(4));
        let guard = lock.try_acquire().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
        take(&mut *table.asked.lock().unwrap())
    };
    assert_eq!(asked_after(Duration::ZERO).await, ["connect", "take", "end"]);
    assert_eq!(asked_after(Duration::from_secs(10)).await, ["take", "end"]);
    assert_eq!(asked_after(FORGOTTEN / 2).await, ["beat", "take", "end"]);
    assert_eq!(asked_after(FORGOTTEN).await, ["beat", "connect", "take", "end"]);
}

/// The holder is told of its loss 300 ms after it shows, at the latest.
#[tokio::test(start_paused = true)]
async fn loss_is_told_without_its_cause_if_the_server_is_slow() {
    for (millis, cause) in [(290, LossCause::Forced), (310, LossCause::SessionEnded)] {
        let table = Behind { forces: Some(Duration::from_millis(millis)), ..Behind::default() };
        let locks = Locks::new(SessionLocks::open(table, Background::new()).await.unwrap());
        let guard = locks.lock("a").lease(Duration::from_secs(4)).acquire().await.unwrap();
        assert_eq!(guard.lost().await, cause, "the server says so after {millis} ms");
    }
}
