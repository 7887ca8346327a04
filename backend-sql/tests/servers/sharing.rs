//! Lease rows with several holders: readers and permits.

use crate::{
    Claim, Duration, Grant, LONG, LossCause, Mode, RELEASED, Release, Store, Table, busy, case::cases, claim,
    granted, name, soon, waiting,
};
use std::num::NonZeroU32;
use tenure_core::{Conversion, Renewal};
use tokio::task::JoinSet;

cases!("sharing":
    a_share_whose_time_is_over_counts_for_nothing.of_lease_rows(), the_last_of_the_shares_keeps_the_row.of_lease_rows(),
    a_batch_renews_every_mode.of_lease_rows(),
    conversions_keep_claim_token_and_lease.of_lease_rows(), those_who_disagree_about_the_number_are_told.of_lease_rows(),
    force_ends_all_and_each_learns_of_it.of_lease_rows(), a_sweep_keeps_the_token_and_those_who_share.of_lease_rows(),
    a_lone_reader_that_asks_twice_has_what_it_had.of_lease_rows(),
    many_clients_that_come_and_go_at_once_all_get_in.of_lease_rows(),
    who_shared_a_name_is_not_let_in_beside_its_writer.of_lease_rows(),
    one_who_comes_and_goes_leaves_others_a_moment.of_lease_rows().alone(),
);

/// Long enough for one who asks to have been refused.
const MOMENT: Duration = Duration::from_millis(300);

pub(crate) fn reader(text: &str) -> Claim {
    Claim { mode: Mode::Shared, ..claim(text) }
}

pub(crate) fn permits(text: &str, take: u32, of: u32) -> Claim {
    let number = |n| NonZeroU32::new(n).unwrap();
    Claim { mode: Mode::Permit { take: number(take), of: number(of) }, ..claim(text) }
}

/// Ends the time of a claim's share, as the clock would.
async fn expire(table: &Table, grant: &Grant) {
    let (claim, name) = (grant.claim.to_string(), grant.name.as_str());
    let Some(mut record) = table.record(name).await else {
        let row = format!("WHERE name = '{name}' AND claim = '{claim}'");
        table.execute(&format!("UPDATE {{t}} SET expires_at = 1 {row}")).await;
        let expired = format!("SELECT COUNT(*) FROM {{t}} {row} AND expires_at = 1");
        assert_eq!(table.number(&expired).await, 1, "it is not in the row");
        return;
    };
    let mut held = record["held"].as_array_mut().unwrap().iter_mut();
    held.find(|one| one["claim"] == claim.as_str()).expect("it is not in the record")["until"] = 1.into();
    table.set_record(name, &record).await;
}

async fn modes(store: &Store, text: &str) -> Vec<Mode> {
    store.holders(&name(text)).await.unwrap().iter().map(|holder| holder.mode).collect()
}

async fn a_share_whose_time_is_over_counts_for_nothing(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let dead = granted(&ours, &permits("a", 2, 3)).await;
    let alive = granted(&theirs, &permits("a", 1, 3)).await;
    busy(&ours, &permits("a", 1, 3)).await.unwrap();
    expire(table, &dead).await;
    assert_eq!(modes(&ours, "a").await, [alive.mode]);
    assert_eq!(ours.release(&dead).await.unwrap(), Release::Lost(LossCause::Expired));
    assert_eq!(ours.renew(std::slice::from_ref(&dead)).await.unwrap(), [Renewal::Lost(LossCause::Expired)]);
    let next = granted(&ours, &permits("a", 2, 3)).await;
    assert!(next.token > alive.token && alive.token > dead.token);
    assert_eq!(granted(&ours, &Claim { id: next.claim, ..permits("a", 2, 3) }).await.token, next.token);
    let held = table.record("a").await.unwrap()["held"].as_array().map(Vec::len);
    assert_eq!(held, Some(2), "the dead share is still in the row");
    assert_eq!(ours.release(&next).await.unwrap(), RELEASED);
    assert_eq!(theirs.release(&alive).await.unwrap(), RELEASED);
    let plain = "SELECT COUNT(*) FROM {t} WHERE name = 'a' AND claim IS NULL AND record IS NULL";
    assert_eq!(table.number(plain).await, 1);
    // Tokens rise though the clock is behind them.
    table.execute("UPDATE {t} SET token = token + 3600000000 WHERE name = 'a'").await;
    for ahead in [3_600_000_001, 3_600_000_002] {
        let reading = granted(&ours, &reader("a")).await;
        assert_eq!(reading.token.get(), next.token.get() + ahead);
        assert_eq!(ours.holders(&reading.name).await.unwrap().pop().unwrap().token, Some(reading.token));
    }
}

/// The token of the row is its own, so that it cannot be told from one that was issued just now.
async fn a_lone_reader_that_asks_twice_has_what_it_had(table: &Table) {
    let (store, other) = (table.open().await, table.open().await);
    let brief = reader("a");
    let first = granted(&store, &brief).await;
    let long = Claim { lease: Duration::from_mins(10), ..brief };
    for _ in 0..2 {
        assert_eq!(granted(&store, &long).await.token, first.token);
    }
    assert!(
        busy(&other, &claim("a")).await.unwrap() > Duration::from_mins(9),
        "the longer lease does not count"
    );
    let beside = granted(&other, &reader("a")).await;
    assert!(beside.token > first.token);
    // Now neither token is the row's, or the row's is another's.
    assert_eq!(granted(&store, &long).await.token, first.token);
    assert_eq!(other.release(&beside).await.unwrap(), RELEASED);
    assert_eq!(granted(&store, &long).await.token, first.token);
    assert_eq!(store.release(&first).await.unwrap(), RELEASED);
    assert_eq!(store.release(&first).await.unwrap(), Release::Lost(LossCause::Expired));
    let writer = granted(&other, &claim("a")).await;
    assert!(writer.token > beside.token);
    busy(&store, &reader("a")).await;
}

/// No longer, when that one has gone.
async fn the_last_of_the_shares_keeps_the_row(table: &Table) {
    let store = table.open().await;
    let long = granted(&store, &Claim { lease: Duration::from_mins(10), ..reader("ü") }).await;
    let brief = granted(&store, &Claim { lease: MOMENT, ..reader("ü") }).await;
    let left = busy(&store, &claim("ü")).await.unwrap();
    assert!(left > Duration::from_mins(9), "{left:?}");
    assert_eq!(store.release(&long).await.unwrap(), RELEASED);
    let writer = soon(store.acquire(&waiting("ü"))).await.unwrap();
    assert!(writer.token > brief.token);
    assert_eq!(store.release(&brief).await.unwrap(), Release::Lost(LossCause::TakenOver));
    assert_eq!(modes(&store, "ü").await, [Mode::Exclusive]);
}

async fn a_batch_renews_every_mode(table: &Table) {
    let store = table.open().await;
    let mut grants = Vec::new();
    for number in 0..10 {
        grants.push(granted(&store, &claim(&format!("alone{number}"))).await);
        grants.push(granted(&store, &reader("read")).await);
        grants.push(granted(&store, &permits("permits", 1, 100)).await);
    }
    expire(table, &grants[4]).await;
    assert_eq!(store.release(&grants[5]).await.unwrap(), RELEASED);
    for grant in &mut grants {
        grant.lease = Duration::from_mins(5);
    }
    grants[7].lease = Duration::from_mins(50);
    for (number, answer) in store.renew(&grants).await.unwrap().into_iter().enumerate() {
        let lost = matches!(number, 4 | 5);
        let expected = if lost { Renewal::Lost(LossCause::Expired) } else { Renewal::Renewed };
        assert_eq!(answer, expected, "{number}");
    }
    let held = store.list("").await.unwrap();
    assert_eq!(held.len(), 28);
    for holder in held {
        let long = holder.claim == Some(grants[7].claim);
        let left = holder.left.unwrap();
        assert!(left > Duration::from_mins(if long { 49 } else { 4 }), "{holder:?}");
        assert!(left <= Duration::from_mins(if long { 50 } else { 5 }), "{holder:?}");
    }
    let left = busy(&store, &claim("read")).await.unwrap();
    assert!(left > Duration::from_mins(49), "{left:?}");
    // One of each, of which the columns name only the first; and then one of the others is gone.
    let few: Vec<Grant> = [0, 1, 2].map(|number| grants[number].clone()).to_vec();
    assert_eq!(store.renew(&few).await.unwrap(), [Renewal::Renewed; 3]);
    expire(table, &few[1]).await;
    let lost = Renewal::Lost(LossCause::Expired);
    assert_eq!(store.renew(&few).await.unwrap(), [Renewal::Renewed, lost, Renewal::Renewed]);
}

async fn conversions_keep_claim_token_and_lease(table: &Table) {
    let store = table.open().await;
    let grant = granted(&store, &claim("a")).await;
    let before = store.holders(&grant.name).await.unwrap().remove(0);
    for _ in 0..2 {
        assert_eq!(store.convert(&grant, Mode::Shared).await.unwrap(), Conversion::Converted);
    }
    let after = store.holders(&grant.name).await.unwrap().remove(0);
    assert_eq!((before.claim, before.token, Mode::Shared), (after.claim, after.token, after.mode));
    assert_eq!(before.info, after.info);
    let since = [before, after].map(|holder| holder.since.unwrap());
    assert!(since[1].duration_since(since[0]).unwrap() < Duration::from_millis(1), "{since:?}");

    let other = granted(&store, &reader("a")).await;
    assert_eq!(store.convert(&grant, Mode::Exclusive).await.unwrap(), Conversion::Refused);
    assert_eq!(store.release(&other).await.unwrap(), RELEASED);
    for _ in 0..2 {
        assert_eq!(store.convert(&grant, Mode::Exclusive).await.unwrap(), Conversion::Converted);
    }
    for refused in [reader("a"), permits("a", 1, 1), claim("a")] {
        busy(&store, &refused).await.unwrap();
    }
    // The other's token was greater; it is not that of the writer.
    assert_eq!(store.holders(&grant.name).await.unwrap()[0].token, Some(grant.token));
    assert_eq!(store.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
    assert!(granted(&store, &claim("a")).await.token > other.token);
    let lost = Conversion::Lost(LossCause::TakenOver);
    for to in [Mode::Shared, Mode::Exclusive] {
        assert_eq!(store.convert(&grant, to).await.unwrap(), lost);
    }
}

async fn those_who_disagree_about_the_number_are_told(table: &Table) {
    let store = table.open().await;
    let guard = granted(&store, &permits("a", 1, 4)).await;
    let waits = Claim { waits: true, ..permits("a", 1, 7) };
    for error in [
        store.try_acquire(&permits("a", 1, 7)).await.unwrap_err(),
        soon(store.acquire(&waits)).await.unwrap_err(),
    ] {
        let said = error.to_string();
        assert!(
            !error.is_unavailable() && said.contains("4 permits") && said.contains("7 for this"),
            "{said}"
        );
    }
    expire(table, &guard).await;
    granted(&store, &permits("a", 1, 7)).await;
}

async fn force_ends_all_and_each_learns_of_it(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let (one, other) = (granted(&ours, &reader("a")).await, granted(&theirs, &reader("a")).await);
    let put_out: Vec<_> =
        ours.force_release(&one.name).await.unwrap().iter().map(|h| (h.claim, h.token)).collect();
    assert_eq!(put_out, [(Some(one.claim), Some(one.token)), (Some(other.claim), Some(other.token))]);
    assert!(ours.force_release(&one.name).await.unwrap().is_empty());
    let forced = Renewal::Lost(LossCause::Forced);
    assert_eq!(ours.renew(&[one.clone(), other.clone()]).await.unwrap(), [forced; 2]);
    assert!(granted(&theirs, &claim("a")).await.token > other.token);
    assert_eq!(theirs.release(&other).await.unwrap(), Release::Lost(LossCause::Forced));
}

async fn a_sweep_keeps_the_token_and_those_who_share(table: &Table) {
    table.open().await.sweep().await.unwrap();
    // Opened after that sweep, it does not sweep by itself.
    let store = table.open().await;
    let gone = granted(&store, &reader("gone")).await;
    let kept = granted(&store, &Claim { lease: Duration::from_hours(72), ..reader("kept") }).await;
    granted(&store, &reader("kept")).await;
    table.execute("UPDATE {t} SET token = token + 3600000000 WHERE name = 'gone'").await;
    assert_eq!(store.release(&gone).await.unwrap(), RELEASED);
    table.execute("UPDATE {t} SET expires_at = expires_at - {day} - {day}").await;
    assert_eq!(store.sweep().await.unwrap(), 1);
    assert_eq!(store.renew(std::slice::from_ref(&kept)).await.unwrap(), [Renewal::Renewed]);
    let anew = granted(&store, &reader("gone")).await;
    assert!(anew.token.get() > gone.token.get() + 3_600_000_000, "{} after {}", anew.token, gone.token);
}

/// Each writes only what nobody has changed since it was read: nobody is overtaken for ever.
async fn many_clients_that_come_and_go_at_once_all_get_in(table: &Table) {
    let mut clients = JoinSet::new();
    for number in 0..8 {
        // Patient: how long that takes together is the machine's affair.
        let store = table.options().response_timeout(LONG).open().await.unwrap();
        let asked = move || if number % 2 == 0 { reader("read") } else { permits("permits", 1, 8) };
        clients.spawn(async move {
            for _ in 0..25 {
                let grant = granted(&store, &asked()).await;
                let mut told = Renewal::Unanswered;
                // Where others were faster, it is asked for again.
                while told == Renewal::Unanswered {
                    told = store.renew(std::slice::from_ref(&grant)).await.unwrap()[0];
                }
                assert_eq!(told, Renewal::Renewed);
                assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let free = "SELECT COUNT(*) FROM {t} WHERE name <> '' AND claim IS NULL AND record IS NULL";
    assert_eq!(table.number(free).await, 2);
}

/// Nor told of those who have gone, although its client remembers the name as it was.
async fn who_shared_a_name_is_not_let_in_beside_its_writer(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let mut last = None;
    for turn in 0..20 {
        let reading = [granted(&theirs, &reader("a")).await, granted(&theirs, &reader("a")).await];
        let beside = granted(&ours, &reader("a")).await;
        assert!(last < Some(reading[0].token) && reading[1].token < beside.token);
        assert_eq!(ours.release(&beside).await.unwrap(), RELEASED);
        for grant in &reading {
            assert_eq!(theirs.release(grant).await.unwrap(), RELEASED);
        }
        let writing = granted(&theirs, &claim("a")).await;
        assert!(writing.token > beside.token);
        busy(&ours, &reader("a")).await.expect("it was let in beside a writer");
        assert_eq!(ours.release(&beside).await.unwrap(), Release::Lost(LossCause::TakenOver));
        assert_eq!(theirs.release(&writing).await.unwrap(), RELEASED);
        let alone = granted(&ours, &claim("a")).await;
        assert!(alone.token > writing.token, "turn {turn}");
        assert_eq!(ours.release(&alone).await.unwrap(), RELEASED);
        last = Some(alone.token);
    }
}

/// Whoever shares a name with one who never rests gets its lease renewed, and a third gets in.
async fn one_who_comes_and_goes_leaves_others_a_moment(table: &Table) {
    let (ours, theirs, third) = (table.open().await, table.open().await, table.open().await);
    let long = Claim { lease: Duration::from_mins(1), ..reader("a") };
    let held = granted(&theirs, &long).await;
    let comes_and_goes = async {
        loop {
            let beside = granted(&ours, &reader("a")).await;
            assert_eq!(ours.release(&beside).await.unwrap(), RELEASED);
        }
    };
    let others = async {
        for _ in 0..20 {
            let renewal = async {
                while theirs.renew(std::slice::from_ref(&held)).await.unwrap() != [Renewal::Renewed] {}
            };
            soon(renewal).await;
            let beside = soon(granted(&third, &reader("a"))).await;
            assert_eq!(soon(third.release(&beside)).await.unwrap(), RELEASED);
        }
    };
    tokio::select! {
        () = comes_and_goes => {}
        () = others => {}
    }
    assert_eq!(theirs.release(&held).await.unwrap(), RELEASED);
}
