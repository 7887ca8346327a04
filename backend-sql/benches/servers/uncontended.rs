//! Locks that are free, beside two bare statements through a pool.

use crate::{
    place::{Place, Way as Lock},
    pool::Pool,
    support::{Way, record, report},
};
use tenure_core::{ClaimId, Locks};

const ROUNDS: u32 = 40;
const CYCLES: u32 = 25;

pub(crate) async fn measure(place: &Place) {
    for way in Lock::all(place.kind) {
        let relaxed = matches!(way, Lock::LeaseRowRelaxed | Lock::RowLockRelaxed);
        // As many connections as tenure has.
        let (pool, locks) = (Pool::connect(&place.url(), relaxed, 2).await, place.locks(way).await);
        let is_own = matches!(way, Lock::Advisory);
        let bare = if is_own { "the server's own lock" } else { "two bare statements" };
        let (mut bare, mut ours) = (Way::new(bare), Way::new(way.name()));
        let bare_cycle = async || if is_own { pool.own_cycle("a").await } else { bare_cycle(&pool).await };
        // Rows, prepared statements.
        bare_cycle().await;
        cycle(&locks).await;
        for _ in 0..ROUNDS {
            bare.round(CYCLES, async || bare_cycle().await).await;
            ours.round(CYCLES, async || cycle(&locks).await).await;
        }
        let what = format!("{}: uncontended acquire + release, {}", place.kind, way.name());
        report(&what, &bare, &ours);
        let (own, before) = (place.counting().await, place.statements().await);
        for _ in 0..CYCLES {
            cycle(&locks).await;
        }
        let statements = place.statements().await - before - own;
        println!("  {statements} statements for {CYCLES} cycles");
        record(&what, &statements.to_string(), &format!("statements for {CYCLES} cycles"), &[]);
        if matches!(way, Lock::LeaseRow | Lock::LeaseRowRelaxed) {
            beside_others(place, way, &locks).await;
        }
        locks.close().await;
    }
}

/// A reader and a permit, compared with a lock: with no other holder of the name, and with three.
async fn beside_others(place: &Place, way: Lock, locks: &Locks) {
    let (read, permit) = (locks.rw("read").read(), locks.semaphore("permits", 8).permit());
    for (beside, more) in [("nobody", 0), ("three others", 3)] {
        let mut others = Vec::new();
        for _ in 0..more {
            others.push(read.acquire().await.expect("nobody writes"));
            others.push(permit.acquire().await.expect("there are eight"));
        }
        for (what, lock) in [("read()", &read), ("permit()", &permit)] {
            let (mut alone, mut shared) = (Way::new("a lock"), Way::new(what));
            for _ in 0..ROUNDS {
                alone.round(CYCLES, async || cycle(locks).await).await;
                shared
                    .round(CYCLES, async || {
                        let guard = lock.acquire().await.expect("there is room");
                        guard.release().await.expect("it was held");
                    })
                    .await;
            }
            let (kind, way) = (place.kind, way.name());
            let title =
                format!("{kind}: {what} + release beside {beside}, {way}, where the lock is what is bare");
            report(&format!("{title} (asked for: 0.83)"), &alone, &shared);
        }
        for guard in others {
            guard.release().await.expect("it was held");
        }
    }
}

async fn bare_cycle(pool: &Pool) {
    pool.cycle("a", &ClaimId::new().to_string()).await;
}

async fn cycle(locks: &Locks) {
    let guard = locks.lock("a").acquire().await.expect("it is free");
    guard.release().await.expect("it was held");
}
