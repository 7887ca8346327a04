//! A lock after a long silence.

use super::issue::Issue;
use super::*;
use std::{future::pending, mem::take, sync::Mutex};
use tenure_core::{Locks, Token};
use tokio::time::{Instant, sleep};

/// A firewall forgets a connection that was idle for this long.
const FORGOTTEN: Duration = Duration::from_mins(4);

/// A table behind a firewall that drops packets of connections that it has forgotten. It notes what it is asked for.
#[derive(Clone, Default)]
struct Behind(Arc<Mutex<Vec<&'static str>>>);

impl Behind {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
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

impl RowTable for Behind {
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

    async fn beat(&self, last: &mut Instant) -> Result<(), StoreError> {
        self.pass(last, "beat").await;
        Ok(())
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
        was_forced(&Name, ClaimId) -> bool,
        holders(&Name) -> Vec<Holder>,
        list(&str, Option<&str>) -> Vec<Holder>,
        force(&Name) -> Vec<Holder>,
    );

    async fn open(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_replaced_if_firewall_dropped_it() {
    let table = Behind::default();
    let locks = Locks::new(RowLocks::open(table.clone(), Background::new()).await.unwrap());
    let asked_after = async |silence: Duration| {
        sleep(silence).await;
        // A try that waited for the response timeout would come too late.
        let lock = locks.lock("a").lease(Duration::from_secs(4));
        let guard = lock.try_acquire().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
        take(&mut *table.0.lock().unwrap())
    };
    assert_eq!(asked_after(Duration::ZERO).await, ["connect", "take", "end"]);
    assert_eq!(asked_after(Duration::from_secs(10)).await, ["take", "end"]);
    assert_eq!(asked_after(FORGOTTEN / 2).await, ["beat", "take", "end"]);
    assert_eq!(asked_after(FORGOTTEN).await, ["beat", "connect", "take", "end"]);
}
