//! The price list of the page, held to the requests that are sent in an hour.

use crate::counted::{Counted, Counts};
use object_store::ObjectStore;
use std::{sync::Arc, time::Duration};
use tenure_conformance::pause;
use tenure_core::{Guard, Locks};
use tenure_object::{ObjectBackend, ObjectOptions};

const PAGE: &str = include_str!("../../../docs/objects.md");
const HOUR: Duration = Duration::from_hours(1);

/// The row of the page's table that begins so: its puts and its gets.
fn row(begin: &str) -> Counts {
    let row = PAGE.lines().find_map(|line| line.strip_prefix(&format!("| {begin} | "))).expect(begin);
    let mut numbers = row.split(" | ").map(|cell| cell.replace(',', "").parse().expect(row));
    Counts { puts: numbers.next().unwrap(), gets: numbers.next().unwrap() }
}

/// Pauses are random, and so is how often two clients collide.
fn check(found: Counts, begin: &str) {
    let Counts { puts, gets } = row(begin);
    let few = |said: u64| said - said / 10..=said + said / 10;
    eprintln!("{begin}: {found:?}");
    assert!(few(puts).contains(&found.puts) && few(gets).contains(&found.gets), "{begin}: {found:?}");
}

async fn locks(store: &Arc<Counted>) -> Locks {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    Locks::new(ObjectBackend::connect_with(store, ObjectOptions::new("locks")).await.unwrap())
}

async fn held(locks: &Locks, name: &str) -> Guard {
    locks.lock(name).acquire().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn holders_and_waiter_send_as_many_requests_as_the_page_says() {
    let store = Arc::new(Counted::new());
    let holder = locks(&store).await;
    let first = held(&holder, "0").await;
    store.take();
    pause::keep(HOUR).await;
    let of_one = store.take();
    check(of_one, "one held lock");

    let other = locks(&store).await;
    let waiting = tokio::spawn(async move { held(&other, "0").await });
    pause::settle(Duration::from_mins(1)).await;
    store.take();
    pause::keep(HOUR).await;
    let of_both = store.take();
    let of_waiter = Counts { puts: of_both.puts - of_one.puts, gets: of_both.gets - of_one.gets };
    check(of_waiter, "one waiter");
    waiting.abort();

    let mut guards = vec![first];
    for number in 1..100 {
        guards.push(held(&holder, &number.to_string()).await);
    }
    pause::settle(Duration::from_mins(1)).await;
    store.take();
    pause::keep(HOUR).await;
    check(store.take(), "a hundred held locks");
    assert!(guards.iter().all(|guard| guard.is_held()));
}

#[tokio::test(start_paused = true)]
async fn acquired_and_released_lock_costs_as_much_as_the_page_says() {
    let store = Arc::new(Counted::new());
    let locks = locks(&store).await;
    held(&locks, "a").await.release().await.unwrap();
    store.take();
    held(&locks, "a").await.release().await.unwrap();
    assert_eq!(store.take(), Counts { puts: 2, gets: 2 });
    pause::keep(Duration::from_mins(1)).await;
    held(&locks, "a").await.release().await.unwrap();
    assert_eq!(store.take(), Counts { puts: 3, gets: 4 });
    assert!(PAGE.contains("An acquire and its release cost 2 puts and 2 gets (3 and 4 if"));
}

#[tokio::test(start_paused = true)]
async fn long_lease_costs_a_fifth_of_the_default() {
    let store = Arc::new(Counted::new());
    let locks = locks(&store).await;
    let _guard = locks.lock("0").lease(Duration::from_mins(5)).acquire().await.unwrap();
    store.take();
    pause::keep(HOUR).await;
    // In units of a get, of which a put costs twelve and a half.
    let price = |Counts { puts, gets }| puts * 25 + gets * 2;
    let (found, usual) = (price(store.take()), price(row("one held lock")));
    assert!((usual * 18 / 100..=usual * 24 / 100).contains(&found), "{found} of {usual}");
    assert!(PAGE.contains("With `lease=5m`, holding costs a fifth"));
}
