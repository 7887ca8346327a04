//! Lease rows as every database has them: what time and other programs make of a row, which no client can ask for.

use crate::claims::{AWAITED, RELEASED, busy, claim, granted, permits, reader, said, soon, until, waiting};
use serde_json::Value;
use std::{slice, sync::Arc, time::Duration};
use tenure_core::{Backend, Claim, LossCause, Release, Renewal};

/// A table of lease rows. In its statements `{t}` is the table, `{now}` the database's time as the rows have it, and
/// `{second}` and `{day}` are differences of such times.
pub(crate) trait Rows {
    /// A new client of the table. `fair`: with a queue.
    async fn client(&self, fair: bool) -> Arc<dyn Backend>;
    /// Removes idle rows, and returns how many they were.
    async fn swept(&self) -> u64;
    async fn execute(&self, statement: &str);
    async fn number(&self, query: &str) -> i64;
    /// The first column of each row.
    async fn texts(&self, query: &str) -> Vec<String>;
    /// The record in the row of `name`, if the columns do not say everything.
    async fn record(&self, name: &str) -> Option<Value>;
    /// Puts another one there, as another client would.
    async fn set_record(&self, name: &str, record: &Value);
    /// A value that a column takes and that is no text.
    fn no_text(&self) -> Option<&'static str>;
}

/// As where the clock went back by an hour: by columns, and by a record.
pub(crate) async fn token_follows_the_last_where_the_clock_is_behind(rows: &impl Rows) {
    token_follows_the_last(rows, &*rows.client(false).await).await;
}

pub(crate) async fn token_follows_the_last(rows: &impl Rows, store: &dyn Backend) {
    let first = granted(store, &claim("a")).await;
    assert!(first.token.get() > 1_600_000_000_000_000, "not microseconds since 1970");
    assert_eq!(store.release(&first).await.unwrap(), RELEASED);
    rows.execute("UPDATE {t} SET token = token + 3600000000 WHERE name = 'a'").await;
    let mut last = first.token.get() + 3_600_000_000;
    for claims in [vec![claim("a")], vec![claim("a")], vec![reader("a"), reader("a"), reader("a")]] {
        let mut grants = Vec::new();
        for claim in claims {
            grants.push(granted(store, &claim).await);
            last += 1;
            assert_eq!(grants.last().unwrap().token.get(), last, "{}", claim.mode);
        }
        for grant in grants {
            assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
        }
    }
}

/// Those who hold a name alone, beside others, or no longer, for each reason that a row tells.
pub(crate) async fn batch_is_renewed_and_each_is_answered(rows: &impl Rows) {
    let store = rows.client(false).await;
    let mut grants = Vec::new();
    for number in 0..10 {
        grants.push(granted(&store, &claim(&format!("ü{number}"))).await);
        grants.push(granted(&store, &reader("read")).await);
        grants.push(granted(&store, &permits("permits", 1, 100)).await);
    }
    rows.execute("UPDATE {t} SET expires_at = {now} - {second} WHERE name = 'ü0'").await;
    rows.execute("DELETE FROM {t} WHERE name = 'ü1'").await;
    assert_eq!(store.force_release(&grants[6].name).await.unwrap().len(), 1);
    let mut record = rows.record("read").await.unwrap();
    let ended = grants[4].claim.to_string();
    let mut held = record["held"].as_array_mut().unwrap().iter_mut();
    held.find(|held| held["claim"] == ended).expect("it is in the record")["until"] = 1.into();
    rows.set_record("read", &record).await;
    assert_eq!(store.release(&grants[5]).await.unwrap(), RELEASED);
    for grant in &mut grants {
        grant.lease = Duration::from_mins(20);
    }
    grants[7].lease = Duration::from_mins(50);
    rows.execute("CREATE TABLE {t}_before AS SELECT name, version FROM {t}").await;
    for (number, answer) in store.renew(&grants).await.unwrap().into_iter().enumerate() {
        let expected = match number {
            0 | 4 | 5 => Renewal::Lost(LossCause::Expired),
            3 => Renewal::Lost(LossCause::Forgotten),
            6 => Renewal::Lost(LossCause::Forced),
            _ => Renewal::Renewed,
        };
        assert_eq!(answer, expected, "{number}");
    }
    let held = store.list("").await.unwrap();
    assert_eq!(held.len(), 25);
    for holder in held {
        let lease = Duration::from_mins(if holder.claim == Some(grants[7].claim) { 50 } else { 20 });
        let left = holder.left.unwrap();
        // A lease lasts to the end of its last millisecond.
        assert!(
            left > lease / 2 + Duration::from_mins(1) && left <= lease + Duration::from_millis(1),
            "{holder:?}"
        );
    }
    let written =
        "SELECT MAX({t}.version - {t}_before.version) FROM {t} JOIN {t}_before ON {t}.name = {t}_before.name";
    assert_eq!(rows.number(written).await, 1, "a row is written once");
    // A row stands as long as the longest lease in it.
    assert!(busy(&store, &claim("read")).await.unwrap() > Duration::from_mins(31));
    let lost = Release::Lost(LossCause::Forced);
    assert_eq!(store.release(&grants[6]).await.unwrap(), lost);
}

/// A mark is in the columns: of one who waits to hold it alone, as long as it stands.
pub(crate) async fn mark_of_a_waiter_keeps_readers_out_until_it_ends(rows: &impl Rows) {
    let (ours, theirs) = (rows.client(false).await, rows.client(false).await);
    // A client that dies leaves its mark until it ends; one that gives up removes it at once.
    for (name, dies) in [("dies", true), ("gives up", false)] {
        let held = granted(&ours, &reader(name)).await;
        let writer = waiting(name);
        let marked = format!("SELECT COUNT(*) FROM {{t}} WHERE awaited_by = '{}'", writer.id);
        // A claim that does not wait leaves no mark.
        busy(&theirs, &claim(name)).await;
        let all = format!("SELECT COUNT(*) FROM {{t}} WHERE name = '{name}' AND awaited_by IS NOT NULL");
        assert_eq!(rows.number(&all).await, 0);
        tokio::select! {
            acquired = theirs.acquire(&writer) => panic!("it was had: {acquired:?}"),
            () = until(async || rows.number(&marked).await == 1) => {}
        }
        // For longer than the case takes.
        rows.execute(&format!("UPDATE {{t}} SET awaited_until = {{now}} + {{day}} WHERE name = '{name}'"))
            .await;
        busy(&ours, &reader(name)).await.unwrap();
        // Those who hold it already do so.
        assert_eq!(ours.renew(slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
        if dies {
            rows.execute("UPDATE {t} SET awaited_until = {now} - {second}").await;
        } else {
            theirs.withdraw(&writer).await.unwrap();
            assert_eq!(rows.number(&marked).await, 0);
            // Those who wait beside a mark leave none of their own. They are not forgotten when its waiter gives up.
            assert_eq!(ours.release(&held).await.unwrap(), AWAITED);
        }
        granted(&ours, &reader(name)).await;
    }
}

pub(crate) async fn idle_rows_swept_tokens_kept(rows: &impl Rows) {
    // A client that opens the table after this sweep does not sweep by itself.
    rows.swept().await;
    let store = rows.client(false).await;
    let year = Duration::from_hours(365 * 24);
    for text in ["old", "older", "used", "long"] {
        let grant = granted(&store, &Claim { lease: year, ..claim(text) }).await;
        assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
    }
    let gone = granted(&store, &reader("old shared")).await;
    assert_eq!(store.release(&gone).await.unwrap(), RELEASED);
    let kept = granted(&store, &Claim { lease: year, ..reader("kept") }).await;
    granted(&store, &reader("kept")).await;
    granted(&store, &claim("damaged")).await;
    // The holder of the last ran out of time, and its row says nothing of a release.
    granted(&store, &claim("old held")).await;
    let two_days_ago = "SET expires_at = expires_at - {day} - {day} WHERE";
    rows.execute(&format!("UPDATE {{t}} {two_days_ago} name LIKE 'old%' OR name IN ('kept', 'damaged')"))
        .await;
    // As if the clock had gone back by an hour.
    rows.execute("UPDATE {t} SET token = token + 3600000000 WHERE name LIKE 'old%'").await;
    // It stays, or every name that is new would have to come after it.
    rows.execute("UPDATE {t} SET token = 9223372036854775807 WHERE name = 'damaged'").await;
    let greatest = rows.number("SELECT MAX(token) FROM {t} WHERE name LIKE 'old%'").await;
    assert_eq!(rows.swept().await, 4);
    assert_eq!(rows.number("SELECT COUNT(*) FROM {t} WHERE name <> ''").await, 4);
    assert_eq!(rows.swept().await, 0);
    assert_eq!(store.renew(slice::from_ref(&kept)).await.unwrap(), [Renewal::Renewed]);
    for anew in [claim("old"), reader("old shared"), claim("never used")] {
        let grant = granted(&store, &anew).await;
        assert!(grant.token.as_i64() > greatest, "{} is not above {greatest}", grant.token);
    }
    assert_eq!(store.list("").await.unwrap().len(), 5, "the floor was listed as a lock");
}

/// Its holder cannot be read, so no claim is granted it.
pub(crate) async fn row_that_is_not_ours_says_so_and_lets_nobody_in(rows: &impl Rows) {
    let store = rows.client(false).await;
    let beside = granted(&store, &claim("beside")).await;
    let spoils = [
        "record = '{broken'",
        "record = '{\"lent\": []}'",
        "claim = 'somebody'",
        "mode = 'sometimes'",
        "awaited_by = 'somebody'",
        "pid = -1",
        "token = 0",
    ];
    for spoil in spoils.into_iter().chain(rows.no_text()) {
        let held = granted(&store, &claim("a")).await;
        rows.execute(&format!("UPDATE {{t}} SET {spoil} WHERE name = 'a'")).await;
        let refused = [
            store.try_acquire(&claim("a")).await.map(drop),
            store.holders(&held.name).await.map(drop),
            store.force_release(&held.name).await.map(drop),
        ];
        for refused in refused {
            let error = refused.expect_err(spoil);
            let said = said(&error);
            let words = [
                "the row of \"a\" is damaged or from another program (",
                "); delete it after the last lease in it has expired",
            ];
            assert!(
                !error.is_unavailable() && words.iter().all(|word| said.contains(word)),
                "{spoil}: {said}"
            );
        }
        // It hides no other.
        let listed = store.list("").await.unwrap();
        let listed: Vec<_> = listed.iter().map(|holder| (&*holder.name, holder.claim)).collect();
        assert_eq!(listed, [("a", None), ("beside", Some(beside.claim))], "{spoil}");
        rows.execute("DELETE FROM {t} WHERE name = 'a'").await;
    }
    granted(&store, &claim("a")).await;
    rows.set_record("a", &serde_json::json!({ "format": 2, "token": 1 })).await;
    let later = said(&store.try_acquire(&claim("a")).await.unwrap_err());
    assert!(
        later.contains("the row of \"a\" has format 2, and this version of tenure reads format 1"),
        "{later}"
    );
    rows.execute("DELETE FROM {t} WHERE name = 'a'").await;
    granted(&store, &claim("a")).await;
}

/// With each statement that renews, and with rows that cannot be read or cannot be written.
pub(crate) async fn row_that_cannot_be_renewed_costs_no_other_its_lease(rows: &impl Rows) {
    let store = rows.client(false).await;
    // The columns name the first. Of the others, who share a name, only a record does.
    let mut others = vec![granted(&store, &claim("alone")).await];
    for _ in 0..2 {
        others.push(granted(&store, &reader("shared")).await);
    }
    let last = "version = 9223372036854775807";
    let spoils = [
        (1, "claim = 'somebody'"),
        (1, "record = '{broken'"),
        (1, last),
        (2, "record = '{broken'"),
        (2, "token = token + 1"),
        (2, last),
    ];
    let spoils = spoils.into_iter().chain(rows.no_text().map(|spoil| (1, spoil)));
    for (number, (readers, spoil)) in spoils.enumerate() {
        let spoilt = format!("spoilt{number}");
        let mut grants = Vec::new();
        for _ in 0..readers {
            grants.push(granted(&store, &reader(&spoilt)).await);
        }
        rows.execute(&format!("UPDATE {{t}} SET {spoil} WHERE name = '{spoilt}'")).await;
        grants.extend(others.iter().cloned());
        let told = store.renew(&grants).await.unwrap();
        let (spoilt, others) = told.split_at(readers);
        assert!(spoilt.iter().all(|told| *told == Renewal::Unanswered), "{spoil}: {spoilt:?}");
        assert_eq!(others, [Renewal::Renewed; 3], "{spoil}");
    }
}

pub(crate) async fn clients_with_a_queue_and_without_exclude_each_other(rows: &impl Rows) {
    let (with, without) = (rows.client(true).await, rows.client(false).await);
    for (one, other) in [(&with, &without), (&without, &with)] {
        let held = granted(one, &claim("a")).await;
        busy(other, &claim("a")).await;
        let (theirs, next) = (Arc::clone(other), waiting("a"));
        let acquiring = tokio::spawn(async move { theirs.acquire(&next).await.unwrap() });
        let awaits =
            "SELECT COUNT(*) FROM {t} WHERE name = 'a' AND (awaited_until > 0 OR record IS NOT NULL)";
        until(async || rows.number(awaits).await == 1).await;
        assert!(!acquiring.is_finished());
        assert!(matches!(one.release(&held).await.unwrap(), Release::Released { .. }));
        let next = soon(acquiring).await.unwrap();
        busy(one, &claim("a")).await;
        assert_eq!(other.release(&next).await.unwrap(), RELEASED);
    }
    assert!(with.list("").await.unwrap().is_empty());
}
