//! The order of turns, also when waiters or holders go.

use super::*;
use crate::contract::{Grant, Mode, Standing};
use futures_util::FutureExt;
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Wake, Waker},
    time::Duration,
};

fn name() -> Name {
    Name::new("a").unwrap()
}

#[tokio::test]
async fn loop_of_free_turns_lets_other_tasks_run() {
    let (queues, other) = (Arc::new(Queues::default()), tokio::spawn(async {}));
    for _ in 0..10_000 {
        let mut seat = queues.join(&name());
        seat.wait(None).await;
    }
    assert!(other.is_finished());
}

#[tokio::test]
async fn dropped_waiter_leaves_the_queue() {
    let queues = Arc::new(Queues::default());
    let (mut one, mut two, mut three) = (queues.join(&name()), queues.join(&name()), queues.join(&name()));
    assert!(one.try_turn());
    {
        let mut gone = pin!(two.wait(None));
        let mut next = pin!(three.wait(None));
        assert!(gone.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
        assert_eq!(one.queue.order().len(), 2);
    }
    assert_eq!(one.queue.order().len(), 0, "dropped waiters are kept");
    let mut late = Box::pin(two.wait(None));
    assert!(late.as_mut().now_or_never().is_none());
    drop(one);
    // It has got the turn, and goes without looking.
    drop(late);
    assert!(three.try_turn(), "the turn went with it");
}

#[tokio::test(start_paused = true)]
async fn unpolled_waiter_keeps_its_place_but_not_the_turn() {
    let queues = Arc::new(Queues::default());
    let with_turn = || async {
        let mut seat = queues.join(&name());
        seat.wait(None).await;
        seat
    };
    let one = with_turn().await;
    let (mut unpolled, mut next) = (Box::pin(with_turn()), Box::pin(with_turn()));
    assert!(unpolled.as_mut().now_or_never().is_none());
    drop(one);
    assert!(!queues.join(&name()).try_turn(), "a try overtook a waiter that was just told");
    let next_seat = tokio::time::timeout(PICK_UP * 3, &mut next).await.expect("the turn was left behind");
    let mut last = Box::pin(with_turn());
    assert!(unpolled.as_mut().now_or_never().is_none() && last.as_mut().now_or_never().is_none());
    drop(next_seat);
    assert!(last.as_mut().now_or_never().is_none(), "the last overtook the one that came back");
    let came_back = unpolled.as_mut().now_or_never().expect("it has its turn");
    drop(came_back);
    assert!(last.as_mut().now_or_never().is_some());
    drop((unpolled, next, last));
    assert!(queues.is_empty());
}

#[tokio::test(start_paused = true)]
async fn unpolled_waiter_blocks_no_try_or_newcomer() {
    let queues = Arc::new(Queues::default());
    let mut one = queues.join(&name());
    assert!(one.try_turn());
    let mut unpolled = Box::pin(async {
        let mut seat = queues.join(&name());
        seat.wait(None).await;
        seat
    });
    assert!(unpolled.as_mut().now_or_never().is_none());
    drop(one);
    tokio::time::advance(PICK_UP).await;
    let mut tries = queues.join(&name());
    assert!(tries.try_turn());
    drop(tries);
    let mut comes = queues.join(&name());
    comes.wait(None).now_or_never().expect("the turn is free");
    drop(comes);
    assert!(unpolled.as_mut().now_or_never().is_some(), "its place was lost");
}

#[tokio::test]
async fn turn_is_passed_on_if_the_waiter_no_longer_needs_it() {
    let queues = Arc::new(Queues::default());
    let (mut one, mut other) = (queues.join(&name()), queues.join(&name()));
    assert!(one.try_turn());
    let better = Cell::new(None);
    {
        let mut waiting = pin!(other.wait_or(None, || better.get()));
        assert!(waiting.as_mut().now_or_never().is_none());
        better.set(Some("re-entry"));
        drop(one);
        assert_eq!(waiting.as_mut().now_or_never(), Some(Some("re-entry")));
    }
    assert!(queues.join(&name()).try_turn());
}

/// Whether a waiter was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// As where no thread can be started, and there is no runtime either.
#[test]
fn panicking_release_does_not_stop_the_next_turn() {
    let (queues, lease) = (Arc::new(Queues::default()), Duration::from_secs(9));
    let (mut one, mut other) = (queues.join(&name()), queues.join(&name()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert!(one.try_turn());
    {
        let mut waiting = pin!(other.wait(None));
        let entered = runtime.enter();
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(entered);
        let standing = Standing::Lease { sent: Moment::now(), stands: lease };
        let (claim, name, mode, token) = (ClaimId::new(), name(), Mode::Exclusive, Token::MIN);
        let grant = Grant { claim, name, mode, token, reserved: 0, lease, standing, epoch: None };
        let terms = Terms { lease, holder: Arc::default(), successors: 1 };
        let release = {
            let woken = Arc::clone(&woken);
            move || assert!(woken.0.load(Ordering::SeqCst), "no thread for the release")
        };
        let estate = Estate::new(grant, terms, release);
        let left = catch_unwind(AssertUnwindSafe(|| one.leave_to_next(estate)));
        assert!(left.is_err(), "the release comes after the turn");
        assert!(waiting.as_mut().now_or_never().is_some(), "the turn was lost");
    }
    assert!(!queues.join(&name()).try_turn());
    drop(other);
    assert!(queues.is_empty(), "the seat is still counted");
}
