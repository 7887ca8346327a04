//! Advisory locks.

use crate::{
    Backend, Kind, LONG, RELEASED, Table, busy,
    case::cases,
    claim, granted,
    lease_rows::Rows,
    name, said, soon,
    store::{Options, Store},
    transactions, until, waiting,
};
use std::sync::Arc;
use tenure_core::{Claim, HolderInfo};
use tenure_sql::AdvisoryKey;

const POSTGRES: &[Kind] = &[Kind::Postgres];

cases!("advisory":
    foreign_program_excludes_and_is_excluded.of_advisory_locks(),
    names_with_one_key_exclude_each_other.on(POSTGRES).of_advisory_locks(),
    tables_and_prefixes_never_meet.of_advisory_locks(), contradicting_options_are_refused.of_advisory_locks(),
    lock_writes_no_row.on(POSTGRES).of_advisory_locks(),
    tokens_follow_a_sequence_ahead_of_the_clock.on(POSTGRES).of_advisory_locks(),
    holder_creates_an_index_while_others_wait.on(POSTGRES).of_advisory_locks(),
    long_names_and_labels_are_listed.on(POSTGRES).of_advisory_locks(),
    list_needs_to_see_other_users.on(POSTGRES).of_advisory_locks(),
    refused_token_leaves_no_lock.on(POSTGRES).of_advisory_locks(),
    lock_without_a_token_has_no_holder_yet.on(POSTGRES).of_advisory_locks(),
    dropped_table_is_made_again.on(POSTGRES).of_advisory_locks(),
    session_shows_what_the_page_says.on(POSTGRES).of_advisory_locks(),
    transaction_holds_a_lock.on(POSTGRES).of_advisory_locks(),
);

/// Options with the keys of other programs, which know no prefix; and how such a program locks a name, tries to, and
/// unlocks it.
fn foreign(table: &Table) -> Vec<(Options, [&'static str; 3])> {
    let of_postgres = |key, lock| (table.options().prefix("").advisory_key(key), lock);
    if !table.is_postgres() {
        let lock =
            ["DO GET_LOCK('{n}', 10)", "SELECT CAST(GET_LOCK('{n}', 0) AS SIGNED)", "DO RELEASE_ALL_LOCKS()"];
        return vec![(table.options().prefix("").plain_user_locks(true), lock)];
    }
    vec![
        of_postgres(
            AdvisoryKey::HashTextExtended,
            [
                "SELECT pg_advisory_lock(hashtextextended('{n}', 0))",
                "SELECT pg_try_advisory_lock(hashtextextended('{n}', 0))::int::bigint",
                "SELECT pg_advisory_unlock_all()",
            ],
        ),
        of_postgres(
            AdvisoryKey::HashText,
            [
                "SELECT pg_advisory_lock(hashtext('{n}'))",
                "SELECT pg_try_advisory_lock(hashtext('{n}'))::int::bigint",
                "SELECT pg_advisory_unlock_all()",
            ],
        ),
        of_postgres(
            AdvisoryKey::Number(-42),
            [
                "SELECT pg_advisory_lock(-42)",
                "SELECT pg_try_advisory_lock(-42)::int::bigint",
                "SELECT pg_advisory_unlock_all()",
            ],
        ),
    ]
}

async fn foreign_program_excludes_and_is_excluded(table: &Table) {
    for (options, statements) in foreign(table) {
        let store = options.open().await.unwrap();
        let text = format!("f{}", &table.name[table.name.len() - 12..]);
        let [lock, try_lock, unlock] = statements.map(|statement| statement.replace("{n}", &text));
        let mut program = table.raw().await;
        program.execute(&lock).await;
        busy(&store, &claim(&text)).await;
        let holders = store.holders(&name(&text)).await.unwrap();
        assert!(
            matches!(&*holders, [holder] if holder.claim.is_none() && holder.info.label.is_some()),
            "{holders:?}"
        );
        let refused = store.force_release(&name(&text)).await.unwrap_err();
        assert!(said(&refused).contains("has this"), "{}", said(&refused));
        let waiter = store.clone();
        let next = waiting(&text);
        let acquiring = tokio::spawn(async move { waiter.acquire(&next).await });
        program.execute(&unlock).await;
        let grant = soon(acquiring).await.unwrap().unwrap();
        assert_eq!(program.number(&try_lock).await, 0, "a holder was not excluded");
        assert_eq!(store.holders(&grant.name).await.unwrap()[0].claim, Some(grant.claim));
        assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
        assert_eq!(program.number(&try_lock).await, 1);
    }
}

async fn names_with_one_key_exclude_each_other(table: &Table) {
    let options = table.options().prefix("").advisory_key(AdvisoryKey::Number(4711));
    let store = options.open().await.unwrap();
    let one = granted(&store, &claim("one")).await;
    busy(&store, &claim("other")).await;
    // Who asks is told the name that keeps it out, and cannot end that one unseen.
    assert_eq!(store.holders(&name("other")).await.unwrap()[0].name, one.name);
    let refused = store.force_release(&name("other")).await.unwrap_err();
    assert!(said(&refused).contains("has this advisory lock"), "{}", said(&refused));
    assert_eq!(store.release(&one).await.unwrap(), RELEASED);
    let other = granted(&store, &claim("other")).await;
    assert!(other.token > one.token);
    assert_eq!(store.release(&other).await.unwrap(), RELEASED);
}

async fn tables_and_prefixes_never_meet(table: &Table) {
    let first = table.open().await;
    let grant = granted(&first, &claim("b/c")).await;
    let elsewhere = format!("{}_2", table.name);
    let prefix = format!("{}/b", table.name);
    for (options, text) in [
        (table.options().table(&elsewhere), "b/c"),
        (table.options().prefix(&prefix), "c"),
        (table.options().prefix(""), "b/c"),
    ] {
        let other = options.open().await.unwrap();
        let free = granted(&other, &claim(text)).await;
        assert_eq!(other.list("").await.unwrap().len(), 1);
        assert_eq!(other.release(&free).await.unwrap(), RELEASED);
    }
    assert_eq!(first.release(&grant).await.unwrap(), RELEASED);
}

async fn contradicting_options_are_refused(table: &Table) {
    for (options, _) in foreign(table) {
        let error = options.prefix("p").open().await.err().expect("a prefix that others do not know");
        assert!(error.to_string().contains("invalid prefix"), "{error}");
    }
    if let Options::Postgres { url, options } = table.options() {
        let pooled = Options::Postgres { url, options: options.pooler(true) };
        let error = pooled.open().await.err().expect("a pooler lends sessions to others");
        assert!(error.to_string().contains("invalid pooler"), "{error}");
    }
}

async fn lock_writes_no_row(table: &Table) {
    let store = table.open().await;
    for text in ["a", "b", "a"] {
        let grant = granted(&store, &claim(text)).await;
        assert_eq!(store.holders(&grant.name).await.unwrap().len(), 1);
        assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
    }
    assert_eq!(table.number("SELECT count(*) FROM {t}").await, 0);
}

async fn tokens_follow_a_sequence_ahead_of_the_clock(table: &Table) {
    let store = table.open().await;
    let first = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&first).await.unwrap(), RELEASED);
    let ahead = first.token.as_i64() + 3_600_000_000;
    assert_eq!(table.number(&format!("SELECT setval('{{t}}_tokens', {ahead})")).await, ahead);
    for more in 1..=3 {
        let next = granted(&store, &claim("a")).await;
        assert_eq!(next.token.as_i64(), ahead + more);
        assert_eq!(store.release(&next).await.unwrap(), RELEASED);
    }
}

/// It waits for all statements that began before it, among them those of waiters.
async fn holder_creates_an_index_while_others_wait(table: &Table) {
    let store = table.open().await;
    let grant = granted(&store, &claim("a")).await;
    let (next, waiter) = (waiting("a"), store.clone());
    let id = next.id;
    let acquiring = tokio::spawn(async move { waiter.acquire(&next).await });
    table.until_waits(id).await;
    table.execute("CREATE INDEX CONCURRENTLY ON {t} (forced_at)").await;
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
    let next = soon(acquiring).await.unwrap().unwrap();
    assert_eq!(store.release(&next).await.unwrap(), RELEASED);
}

async fn long_names_and_labels_are_listed(table: &Table) {
    let store = table.options().prefix(&"п".repeat(100)).open().await.unwrap();
    let texts = ["ж".repeat(100), "a */ b % /* c".to_owned(), "'; --".to_owned(), "x".repeat(200)];
    let mut grants = Vec::new();
    for text in &texts {
        let holder = Arc::new(HolderInfo::here(Some("*/ ю".repeat(30))));
        grants.push(granted(&store, &Claim { holder, ..claim(text) }).await);
    }
    let mut expected: Vec<&str> = texts.iter().map(String::as_str).collect();
    expected.sort_unstable();
    let listed = store.list("").await.unwrap();
    assert_eq!(listed.iter().map(|holder| holder.name.as_str()).collect::<Vec<_>>(), expected);
    for grant in &grants {
        let holders = store.holders(&grant.name).await.unwrap();
        assert_eq!(holders.len(), 1);
        assert_eq!((holders[0].claim, holders[0].token), (Some(grant.claim), Some(grant.token)));
        assert_eq!(store.release(grant).await.unwrap(), RELEASED);
    }
    assert!(store.list("").await.unwrap().is_empty());
}

async fn list_needs_to_see_other_users(table: &Table) {
    let ours = table.open().await;
    let (user, url) = table.user().await;
    table.grant("SELECT, INSERT, DELETE", &user).await;
    let theirs: Store = table.options_at(&url).open().await.unwrap();
    let grant = granted(&ours, &claim("a")).await;
    busy(&theirs, &claim("a")).await;
    let holders = theirs.holders(&grant.name).await.unwrap();
    assert_eq!((holders[0].claim, holders[0].token), (Some(grant.claim), Some(grant.token)));
    let refused = theirs.list("").await.unwrap_err();
    assert!(said(&refused).contains("GRANT pg_read_all_stats"), "{}", said(&refused));
    table.admin().await.execute(&format!("GRANT pg_read_all_stats TO {user}")).await;
    assert_eq!(theirs.list("").await.unwrap()[0].info, *claim("a").holder);
    let other = granted(&theirs, &claim("b")).await;
    assert!(other.token > grant.token);
    assert_eq!(theirs.release(&other).await.unwrap(), RELEASED);
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
}

/// The session has the lock by then, which is none of its settings.
async fn refused_token_leaves_no_lock(table: &Table) {
    let ours = table.open().await;
    let (user, url) = table.user().await;
    table.grant("SELECT, INSERT, DELETE", &user).await;
    let theirs = table.options_at(&url).open().await.unwrap();
    table.admin().await.execute(&format!("REVOKE USAGE ON SEQUENCE {}_tokens FROM {user}", table.name)).await;
    let refused = theirs.try_acquire(&claim("a")).await.unwrap_err();
    assert!(said(&refused).contains("GRANT USAGE, UPDATE ON SEQUENCE"), "{}", said(&refused));
    let grant = soon(ours.acquire(&waiting("a"))).await.unwrap();
    assert_eq!(ours.release(&grant).await.unwrap(), RELEASED);
    let refused = table.options_at(&url).open().await.err().expect("a user who may not draw tokens");
    assert!(said(&refused).contains("GRANT USAGE, UPDATE ON SEQUENCE"), "{}", said(&refused));
}

async fn dropped_table_is_made_again(table: &Table) {
    let store = table.open().await;
    for _ in 0..2 {
        let grant = granted(&store, &claim("a")).await;
        // Its desk is connected by now.
        assert_eq!(store.list("").await.unwrap().len(), 1);
        assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
        table.execute("DROP TABLE {t}").await;
    }
}

/// A session has the lock, and waits until it may raise the sequence. It held another name before, and shows neither that
/// holder nor that of a program without tenure.
async fn lock_without_a_token_has_no_holder_yet(table: &Table) {
    let store = table.options().response_timeout(LONG).open().await.unwrap();
    let before = granted(&store, &claim("a")).await;
    assert_eq!(store.release(&before).await.unwrap(), RELEASED);
    // A token that is drawn within 10 ms of the last one raises nothing, and so waits for no other session.
    let is_old = "SELECT (clock_timestamp() > to_timestamp(last_value / 1000000.0) + interval '20 ms')::int::bigint \
                  FROM {t}_tokens";
    until(async || table.number(is_old).await == 1).await;
    let mut raiser = table.raw().await;
    raiser.execute(&table.sql("SELECT pg_advisory_lock(1952804469, '{t}_tokens'::regclass::oid::int)")).await;
    let (asker, next) = (store.clone(), claim("b"));
    let id = next.id;
    let asking = tokio::spawn(async move { asker.try_acquire(&next).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND classid = 1952804469 \
                 AND objid = '{t}_tokens'::regclass::oid";
    until(async || table.number(waits).await == 1).await;
    for text in ["a", "b"] {
        assert_eq!(store.holders(&name(text)).await.unwrap(), []);
    }
    assert_eq!(store.list("").await.unwrap(), []);
    assert_eq!(store.force_release(&name("a")).await.unwrap(), []);
    // Others are refused already, so this is a release of what comes.
    let forcing = tokio::spawn(async move { store.force_release(&name("b")).await.unwrap() });
    raiser.execute("SELECT pg_advisory_unlock_all()").await;
    let ended = soon(forcing).await.unwrap();
    assert_eq!(ended.iter().map(|holder| holder.claim).collect::<Vec<_>>(), [Some(id)]);
    // Its session may have ended before the answer.
    drop(soon(asking).await.unwrap());
}

/// The format that `docs/contributing/formats.md` shows.
async fn session_shows_what_the_page_says(table: &Table) {
    let store = table.options().prefix("a/b").open().await.unwrap();
    let holder = HolderInfo { label: Some("nightly report".to_owned()), host: "db 1".to_owned(), pid: 4711 };
    let grant = granted(&store, &Claim { holder: Arc::new(holder), ..claim("x*y") }).await;
    let (claim, token, name) = (grant.claim.as_uuid().simple(), grant.token, &table.name);
    let session = format!(
        "FROM pg_stat_activity, (SELECT hashtextextended('public.{name}/a/b', 0) AS seed) AS of \
         WHERE application_name = 'tenure {claim} {token} ' || right(to_hex(seed), 6)"
    );
    let comment = format!("/*tenure own {name} a%2Fb x%2Ay 4711 db%201 =nightly%20report */");
    for beats in [false, true] {
        let shown =
            format!("SELECT count(*) {session} AND query LIKE replace('{comment}', '%', '\\%') || '%'");
        until(async || {
            let is_next = !beats || table.number(&format!("{shown} AND query LIKE '%SELECT 1'")).await == 1;
            is_next && table.number(&shown).await == 1
        })
        .await;
    }
    let key = format!(
        "SELECT count(*) {session} AND EXISTS (SELECT FROM pg_locks AS held WHERE held.pid = pg_stat_activity.pid \
         AND (classid::bigint << 32 | objid::bigint) = hashtextextended('x*y', seed))"
    );
    assert_eq!(table.number(&key).await, 1);
    assert_eq!(store.release(&grant).await.unwrap(), RELEASED);
}

async fn transaction_holds_a_lock(table: &Table) {
    transactions::a_lock_is_held_until_the_transaction_ends(table).await;
}
