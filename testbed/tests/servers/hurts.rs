//! Each hurt shows, and is gone when it is undone.

use crate::client::{Client, client, connect, connect_to, exchange, hangs, within};
use crate::etcd::Etcd;
use crate::redis::Redis;
use crate::zookeeper::Zookeeper;
use crate::{Case, LONG, SHORT};
use std::io;
use std::time::Duration;
use tenure_conformance::pause;
use tenure_conformance::saboteur::{Hurt, SabotageError};
use tenure_testbed::{Kind, Server};
use tokio::time::Instant;

cases! { CASES:
    serves_at_both_addresses,
    says_what_it_cannot,
    freezes_and_thaws: Freeze,
    is_killed_and_comes_back_with_its_data: Kill,
    comes_back_empty: Wipe,
    is_killed_while_frozen: Kill,
    loses_the_ends_of_transactions: LoseEnds,
    expires_sessions: ExpireSessions,
    terminates_backends: TerminateBackends,
    flushes_scripts: FlushScripts,
    pauses_writes: PauseWrites,
    is_read_only: ReadOnly,
    has_no_connections_left: FillConnections,
    has_no_memory_left: FillMemory,
    has_no_room_on_its_disk: FillDisk,
    has_its_rows_locked: LockRows,
    has_its_tables_locked: LockTables,
    has_tables_that_are_in_use: LockTables,
    heals_everything_at_once: Freeze,
}

cases! { OF_ONE_KIND:
    cuts: Cut,
    refuses: Refuse,
    delays: DelayReplies,
    drips: Drip,
    drops_requests: DropRequests,
    hangs_half_open: HalfOpen,
    drops_replies: DropReplies,
    is_hurt_from_any_runtime: Freeze,
}

/// Waits for the row, and changes nothing: who gave up waiting may still get it.
const LOCK: &str = "SELECT value FROM tenure_test FOR UPDATE";

async fn serves_at_both_addresses(server: &Server) {
    let before = server.proxy().expect("a proxy").counters();
    client(server).await.put("one").await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("one"));
    let after = server.proxy().unwrap().counters();
    assert!(after.accepted >= before.accepted + 2 && after.replies.passed > before.replies.passed);

    let mut direct = within(connect_to(server.kind(), &server.direct_url())).await.unwrap();
    assert_eq!(within(direct.get()).await.unwrap().as_deref(), Some("one"));
    assert_eq!(server.proxy().unwrap().counters().accepted, after.accepted, "past the proxy");
}

async fn says_what_it_cannot(server: &Server) {
    let saboteur = server.saboteur();
    for hurt in Hurt::ALL {
        // These have cases of their own, which take long.
        if matches!(hurt, Hurt::Freeze | Hurt::Kill | Hurt::Wipe) {
            continue;
        }
        let done = saboteur.inject(hurt.by(SHORT)).await;
        match done {
            Ok(()) => assert!(saboteur.can(hurt), "{hurt}"),
            Err(SabotageError::CannotHurt { hurt: named, .. }) => {
                assert!(named == hurt && !saboteur.can(hurt));
            }
            Err(error) => panic!("{hurt}: {error}"),
        }
        saboteur.heal().await.unwrap();
    }
}

async fn freezes_and_thaws(server: &Server) {
    let saboteur = server.saboteur();
    let mut open = client(server).await;
    open.put("frozen").await.unwrap();
    saboteur.hurt(Hurt::Freeze).await.unwrap();
    saboteur.hurt(Hurt::Freeze).await.unwrap();
    hangs(open.get()).await;
    hangs(async { connect(server).await?.get().await }).await;
    saboteur.undo(Hurt::Freeze).await.unwrap();
    saboteur.undo(Hurt::Freeze).await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("frozen"));
}

async fn is_killed_and_comes_back_with_its_data(server: &Server) {
    let saboteur = server.saboteur();
    let (url, mut open) = (server.url(), client(server).await);
    for round in ["first", "second"] {
        within(open.put(round)).await.unwrap();
        saboteur.hurt(Hurt::Kill).await.unwrap();
        saboteur.hurt(Hurt::Kill).await.unwrap();
        within(open.get()).await.expect_err("its connections are gone");
        let address = server.address().unwrap();
        let refused = tokio::net::TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        saboteur.restart().await.unwrap();
        assert_eq!(server.url(), url);
        open = client(server).await;
        assert_eq!(within(open.get()).await.unwrap().as_deref(), Some(round));
    }
    // Without a kill before it.
    saboteur.restart().await.unwrap();
    within(open.get()).await.expect_err("its connections are gone");
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("second"));
}

async fn comes_back_empty(server: &Server) {
    let url = server.url();
    client(server).await.put("gone").await.unwrap();
    server.saboteur().hurt(Hurt::Wipe).await.unwrap();
    assert_eq!(server.url(), url);
    assert_eq!(exchange(server).await.unwrap(), None);
    client(server).await.put("kept").await.unwrap();
    server.saboteur().restart().await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("kept"));
}

async fn is_killed_while_frozen(server: &Server) {
    client(server).await.put("both").await.unwrap();
    server.saboteur().hurt(Hurt::Freeze).await.unwrap();
    server.saboteur().hurt(Hurt::Kill).await.unwrap();
    exchange(server).await.expect_err("it is dead");
    server.saboteur().heal().await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("both"));
}

async fn cuts(server: &Server) {
    let mut open = client(server).await;
    open.put("cut").await.unwrap();
    server.saboteur().hurt(Hurt::Cut).await.unwrap();
    within(open.get()).await.expect_err("it was reset");
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("cut"));
}

async fn refuses(server: &Server) {
    let mut open = client(server).await;
    open.put("open").await.unwrap();
    server.saboteur().hurt(Hurt::Refuse).await.unwrap();
    exchange(server).await.expect_err("it is refused");
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("open"));
    server.saboteur().mend().await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("open"));
}

async fn delays(server: &Server) {
    let mut open = client(server).await;
    open.put("late").await.unwrap();
    let proxy = server.proxy().unwrap();
    for hurt in [Hurt::DelayRequests, Hurt::DelayReplies] {
        let before = proxy.counters();
        server.saboteur().inject(hurt.by(LONG)).await.unwrap();
        hangs(open.get()).await;
        within(proxy.until(|now| now.requests.arrived > before.requests.arrived)).await;
        let reaches_server = hurt == Hurt::DelayReplies;
        if reaches_server {
            within(proxy.until(|now| now.replies.arrived > before.replies.arrived)).await;
        }
        assert_eq!(proxy.counters().requests.passed > before.requests.passed, reaches_server, "{hurt}");
        server.saboteur().mend().await.unwrap();
        open = client(server).await;
        assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("late"));
        server.saboteur().inject(hurt.by(SHORT)).await.unwrap();
        let start = Instant::now();
        assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("late"));
        assert!(start.elapsed() >= SHORT);
        server.saboteur().mend().await.unwrap();
    }
}

async fn drips(server: &Server) {
    let mut open = client(server).await;
    open.put("bytes").await.unwrap();
    server.saboteur().inject(Hurt::Drip.by(Duration::from_millis(1))).await.unwrap();
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("bytes"));
    // A client may not ask again before it has the whole answer, whose end is still on its way.
    server.saboteur().mend().await.unwrap();
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("bytes"));
    let passed = server.proxy().unwrap().counters().requests.passed;
    server.saboteur().inject(Hurt::Drip.by(LONG)).await.unwrap();
    hangs(open.get()).await;
    within(server.proxy().unwrap().until(|c| c.requests.passed > passed)).await;
    server.saboteur().mend().await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("bytes"));
}

async fn drops_requests(server: &Server) {
    let (mut open, proxy) = (client(server).await, server.proxy().unwrap());
    open.put("before").await.unwrap();
    server.saboteur().hurt(Hurt::DropRequests).await.unwrap();
    let dropped = proxy.counters().requests.dropped;
    hangs(open.put("never")).await;
    within(proxy.until(|c| c.requests.dropped > dropped)).await;
    server.saboteur().mend().await.unwrap();
    within(open.get()).await.expect_err("a connection that lost a request is reset");
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("before"));
}

async fn hangs_half_open(server: &Server) {
    let mut open = client(server).await;
    open.put("half").await.unwrap();
    server.saboteur().hurt(Hurt::HalfOpen).await.unwrap();
    hangs(open.get()).await;
    hangs(async { connect(server).await?.get().await }).await;
    server.saboteur().mend().await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("half"));
}

async fn drops_replies(server: &Server) {
    let (mut open, proxy) = (client(server).await, server.proxy().unwrap());
    open.put("before").await.unwrap();
    server.saboteur().hurt(Hurt::DropReplies).await.unwrap();
    let dropped = proxy.counters().replies.dropped;
    hangs(open.put("carried-out")).await;
    within(proxy.until(|c| c.replies.dropped > dropped)).await;
    server.saboteur().mend().await.unwrap();
    within(open.get()).await.expect_err("a connection that lost a reply is reset");
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("carried-out"));
}

/// To the server a client whose `COMMIT` was lost has stopped within its transaction, also when it has gone.
async fn loses_the_ends_of_transactions(server: &Server) {
    let (mut open, mut blocked, mut other) =
        (client(server).await, client(server).await, client(server).await);
    open.put("before").await.unwrap();
    server.saboteur().hurt(Hurt::LoseEnds).await.unwrap();
    server.saboteur().hurt(Hurt::LoseEnds).await.unwrap();
    open.execute("BEGIN").await.unwrap();
    open.put("lost").await.unwrap();
    hangs(open.execute("COMMIT")).await;
    drop(open);
    hangs(blocked.execute(LOCK)).await;
    drop(blocked);
    assert_eq!(within(other.get()).await.unwrap().as_deref(), Some("before"));
    server.saboteur().mend().await.unwrap();
    // It had ended no transaction, and goes on.
    within(other.put("after")).await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("after"));
    let mut last = client(server).await;
    last.execute("BEGIN").await.unwrap();
    last.put("last").await.unwrap();
    last.execute("COMMIT").await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("last"));
}

async fn expires_sessions(server: &Server) {
    match server.kind() {
        Kind::Zookeeper => expires_sessions_of_zookeeper(server).await,
        Kind::Etcd => revokes_leases(server).await,
        kind => panic!("no sessions of {kind}"),
    }
}

async fn expires_sessions_of_zookeeper(server: &Server) {
    let mut open = Zookeeper::connect(&server.url(), None).await.unwrap();
    open.put("kept").await.unwrap();
    let session = open.session.clone();
    // It outlives its connection…
    drop(open);
    let mut open = Zookeeper::connect(&server.url(), Some(&session)).await.unwrap();
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("kept"));
    assert_eq!(open.session, session);
    server.saboteur().hurt(Hurt::ExpireSessions).await.unwrap();
    // … and this not.
    within(open.get()).await.expect_err("its session has ended");
    let error = within(Zookeeper::connect(&server.url(), Some(&session))).await.map(drop).unwrap_err();
    assert_eq!(error.to_string(), "session expired");
    exchange(server).await.unwrap();
}

async fn revokes_leases(server: &Server) {
    let mut open = Etcd::connect(&server.url()).await.unwrap();
    let leases = [open.grant().await.unwrap(), open.grant().await.unwrap()];
    // A lease outlives its server…
    server.saboteur().restart().await.unwrap();
    let mut open = Etcd::connect(&server.url()).await.unwrap();
    assert!(open.renew(&leases[0]).await.unwrap() && open.renew(&leases[1]).await.unwrap());
    assert_eq!(open.get().await.unwrap().as_deref(), Some("leased"));
    server.saboteur().hurt(Hurt::ExpireSessions).await.unwrap();
    // … and its end takes its key with it, on the same connection.
    assert!(!open.renew(&leases[0]).await.unwrap() && !open.renew(&leases[1]).await.unwrap());
    assert_eq!(open.get().await.unwrap(), None);
    // Where there is none.
    server.saboteur().hurt(Hurt::ExpireSessions).await.unwrap();
}

async fn terminates_backends(server: &Server) {
    let mut open = client(server).await;
    open.put("kept").await.unwrap();
    server.saboteur().hurt(Hurt::TerminateBackends).await.unwrap();
    within(open.get()).await.expect_err("the server ended it");
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("kept"));
}

async fn flushes_scripts(server: &Server) {
    assert_eq!(server.kind(), Kind::Redis);
    let mut redis = Redis::connect(&server.url()).await.unwrap();
    let script = redis.ask("SCRIPT LOAD 'return 7'").await.unwrap();
    assert_eq!(redis.ask(&format!("EVALSHA {script} 0")).await.unwrap(), ":7");
    server.saboteur().hurt(Hurt::FlushScripts).await.unwrap();
    let error = redis.ask(&format!("EVALSHA {script} 0")).await.unwrap_err();
    assert!(error.to_string().contains("NOSCRIPT"), "{error}");
}

async fn pauses_writes(server: &Server) {
    let mut open = client(server).await;
    open.put("before").await.unwrap();
    server.saboteur().inject(Hurt::PauseWrites.by(LONG)).await.unwrap();
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("before"));
    hangs(open.put("after")).await;
    drop(open);
    server.saboteur().undo(Hurt::PauseWrites).await.unwrap();
    client(server).await.put("last").await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("last"));
}

async fn is_read_only(server: &Server) {
    let mut open = client(server).await;
    open.put("read").await.unwrap();
    server.saboteur().hurt(Hurt::ReadOnly).await.unwrap();
    let error = within(open.put("write")).await.expect_err("it is read-only").to_string();
    assert!(error.to_lowercase().replace('-', "").contains("readonly"), "{error}");
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("read"));
    server.saboteur().undo(Hurt::ReadOnly).await.unwrap();
    within(open.put("write")).await.unwrap();
}

async fn has_no_connections_left(server: &Server) {
    let mut open = client(server).await;
    open.put("in").await.unwrap();
    server.saboteur().hurt(Hurt::FillConnections).await.unwrap();
    server.saboteur().hurt(Hurt::FillConnections).await.unwrap();
    exchange(server).await.expect_err("it is full");
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("in"));
    server.saboteur().undo(Hurt::FillConnections).await.unwrap();
    // A server learns of a closed connection when it looks.
    let freed = async {
        while exchange(server).await.is_err() {
            pause::look_again().await;
        }
    };
    within(Box::pin(freed)).await;
}

async fn has_no_memory_left(server: &Server) {
    let mut open = client(server).await;
    open.put("in").await.unwrap();
    server.saboteur().hurt(Hurt::FillMemory).await.unwrap();
    let error = within(open.put("more")).await.expect_err("it is full").to_string();
    assert!(error.contains("OOM"), "{error}");
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("in"));
    server.saboteur().undo(Hurt::FillMemory).await.unwrap();
    within(open.put("more")).await.unwrap();
}

async fn has_no_room_on_its_disk(server: &Server) {
    let mut open = client(server).await;
    open.put("in").await.unwrap();
    server.saboteur().hurt(Hurt::FillDisk).await.unwrap();
    server.saboteur().hurt(Hurt::FillDisk).await.unwrap();
    let error = within(open.put("more")).await.expect_err("it is full").to_string();
    let full = ["No space left on device", "is full", "space exceeded"];
    assert!(full.iter().any(|words| error.contains(words)), "{error}");
    assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("in"));
    server.saboteur().undo(Hurt::FillDisk).await.unwrap();
    within(open.put("more")).await.unwrap();
    if server.kind() == Kind::Etcd {
        return stays_full_over_a_restart(server).await;
    }
    // Beside a transaction of somebody's, which has the table in use; the second time, healed.
    let mut user = client(server).await;
    user.execute("BEGIN").await.unwrap();
    user.execute(LOCK).await.unwrap();
    server.saboteur().hurt(Hurt::FillDisk).await.unwrap();
    user.execute("ROLLBACK").await.unwrap();
    within(open.put("much more")).await.expect_err("it is full");
    server.saboteur().heal().await.unwrap();
    within(open.put("all")).await.unwrap();
}

async fn stays_full_over_a_restart(server: &Server) {
    server.saboteur().hurt(Hurt::FillDisk).await.unwrap();
    server.saboteur().restart().await.unwrap();
    within(client(server).await.put("much more")).await.expect_err("it is full");
    server.saboteur().heal().await.unwrap();
    within(client(server).await.put("all")).await.unwrap();
}

async fn has_its_rows_locked(server: &Server) {
    is_locked(server, true).await;
}

async fn has_its_tables_locked(server: &Server) {
    is_locked(server, false).await;
}

async fn is_locked(server: &Server, rows_only: bool) {
    let saboteur = server.saboteur();
    let lock = async || {
        if rows_only { saboteur.hurt(Hurt::LockRows).await } else { saboteur.hurt(Hurt::LockTables).await }
    };
    let mut open = client(server).await;
    open.put("mine").await.unwrap();
    lock().await.unwrap();
    lock().await.unwrap();
    if rows_only {
        assert_eq!(within(open.get()).await.unwrap().as_deref(), Some("mine"));
        hangs(open.execute(LOCK)).await;
        saboteur.undo(Hurt::LockRows).await.unwrap();
    } else {
        hangs(open.get()).await;
        saboteur.undo(Hurt::LockTables).await.unwrap();
    }
    client(server).await.put("last").await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("last"));
    // A session that the server ended holds nothing, and healing knows.
    lock().await.unwrap();
    saboteur.hurt(Hurt::TerminateBackends).await.unwrap();
    saboteur.heal().await.unwrap();
    client(server).await.put("healed").await.unwrap();
}

/// They are left out.
async fn has_tables_that_are_in_use(server: &Server) {
    client(server).await.put("in use").await.unwrap();
    let mut user = client(server).await;
    user.execute("BEGIN").await.unwrap();
    user.execute(LOCK).await.unwrap();
    server.saboteur().hurt(Hurt::LockTables).await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("in use"));
    user.execute("ROLLBACK").await.unwrap();
    client(server).await.put("last").await.unwrap();
    server.saboteur().heal().await.unwrap();
}

async fn heals_everything_at_once(server: &Server) {
    let saboteur = server.saboteur();
    client(server).await.put("whole").await.unwrap();
    if saboteur.can(Hurt::ReadOnly) {
        saboteur.hurt(Hurt::ReadOnly).await.unwrap();
    }
    saboteur.hurt(Hurt::HalfOpen).await.unwrap();
    saboteur.inject(Hurt::DelayReplies.by(LONG)).await.unwrap();
    saboteur.hurt(Hurt::Refuse).await.unwrap();
    saboteur.hurt(Hurt::Freeze).await.unwrap();
    saboteur.heal().await.unwrap();
    client(server).await.put("again").await.unwrap();
    saboteur.hurt(Hurt::Kill).await.unwrap();
    saboteur.heal().await.unwrap();
    assert_eq!(exchange(server).await.unwrap().as_deref(), Some("again"));
}

/// Each case of a suite may have a runtime of its own, which ends with it; the server and its proxy do not.
async fn is_hurt_from_any_runtime(server: &Server) {
    let saboteur = server.saboteur();
    let other = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| other().block_on(saboteur.hurt(Hurt::Freeze)).unwrap());
    });
    hangs(Box::pin(exchange(server))).await;
    std::thread::scope(|threads| {
        threads.spawn(|| other().block_on(saboteur.restart()).unwrap());
    });
    exchange(server).await.unwrap();
}
