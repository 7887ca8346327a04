//! From the call that releases to the grant in another process, beside a lock of the server's own.

use crate::{
    bare::Bare,
    hand_offs::report_hand_offs,
    place::{Place, Way as Lock, locks},
    pool::Pool,
    process::{Process, now},
    support::Way,
};
use tenure_core::{ClaimId, Locks};
use tenure_testbed::Kind;
use tokio::io::{AsyncBufReadExt, BufReader};

/// The argument that marks the other process.
pub(crate) const CHILD: &str = "the-other-process";
const SAMPLES: u32 = 100;

/// Each way's number and lock, for both processes.
async fn all(url: &str) -> Vec<(Lock, Locks)> {
    let kind = if url.starts_with("postgres") { Kind::Postgres } else { Kind::Mysql };
    let mut all = Vec::new();
    for way in Lock::all(kind) {
        all.push((way, locks(url, way).await));
    }
    all
}

pub(crate) async fn measure(place: &Place) {
    let (mut bare, ours) = (place.bare().await, all(&place.url()).await);
    let pool = Pool::connect(&place.url(), false, 2).await;
    let mut other = Process::start(CHILD, &place.url());
    let (bare_name, one) = match place.kind {
        Kind::Postgres => ("pg_advisory_lock", "SELECT 1::bigint"),
        _ => ("GET_LOCK", "SELECT 1"),
    };
    let mut ways: Vec<Way> = ["SELECT 1", "one bare statement", bare_name].map(Way::new).into();
    ways.extend(ours.iter().map(|(lock, _)| Way::new(lock.name())));
    for _ in 0..SAMPLES {
        let begin = now();
        bare.number(one).await;
        ways[0].rounds.push(now().saturating_sub(begin));
        let begin = now();
        pool.acquire(&ClaimId::new().to_string(), "x").await;
        ways[1].rounds.push(now().saturating_sub(begin));
        bare.lock().await;
        other.waits(0).await;
        let begin = now();
        bare.unlock().await;
        ways[2].rounds.push(other.granted().await.saturating_sub(begin));
        for (number, (_, locks)) in ours.iter().enumerate() {
            let guard = locks.lock(format!("hand-off {number}")).acquire().await.expect("it is free");
            other.waits(number + 1).await;
            let begin = now();
            guard.release().await.expect("it was held");
            ways[number + 3].rounds.push(other.granted().await.saturating_sub(begin));
        }
    }
    report_hand_offs(place.kind.name(), &ways, 1..3);
}

/// The work of the other process.
pub(crate) async fn child(url: &str) {
    let (mut bare, ours) = (Bare::connect(url).await, all(url).await);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(way)) = orders.next_line().await {
        let way: usize = way.parse().expect("a number");
        let granted = if way == 0 {
            bare.lock().await;
            let granted = now();
            bare.unlock().await;
            granted
        } else {
            let name = format!("hand-off {}", way - 1);
            let guard = ours[way - 1].1.lock(name).acquire().await.expect("it comes free");
            let granted = now();
            guard.release().await.expect("it was held");
            granted
        };
        println!("{}", granted.as_nanos());
    }
}
