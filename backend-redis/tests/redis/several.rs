//! Readers and permits: what stands in the store, and whom it admits when.

use crate::{NO_POLL, NO_SHOW_UP, claim, give_back, grant, proxy::Proxy, server::Server, typical, until};
use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};
use tenure_core::{
    Attempt, Backend, Claim, Conversion, Grant, Guard, Locks, LossCause, Mode, Name, Release, Renewal,
};
use tenure_redis::{RedisBackend, RedisOptions};
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_secs(20);
const KEY: &str = "tenure:a";
const QUEUE: &str = "tenure:a\u{1f}{tenure:a}q";
const STOP: &str = "tenure:a\u{1f}{tenure:a}x";

fn reader(lease: Duration) -> Claim {
    Claim { mode: Mode::Shared, ..claim("a", lease) }
}

fn permits(take: u32, of: u32) -> Claim {
    let number = |n| NonZeroU32::new(n).unwrap();
    Claim { mode: Mode::Permit { take: number(take), of: number(of) }, ..claim("a", LEASE) }
}

async fn both(server: &Server) -> [RedisBackend; 2] {
    let fair = RedisBackend::connect(server.options().fair(true)).await.unwrap();
    [server.backend().await, fair]
}

async fn is_free(backend: &RedisBackend, claim: &Claim) -> bool {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => {
            backend.release(&grant).await.unwrap();
            true
        }
        Attempt::Busy { .. } => false,
    }
}

fn left(server: &Server) -> Duration {
    Duration::from_millis(server.tell::<u64>(&["PTTL", KEY]))
}

#[tokio::test]
async fn the_value_says_how_it_is_held_and_by_whom() {
    let server = Server::start();
    for backend in both(&server).await {
        let (one, other) = (reader(LEASE), reader(LEASE * 2));
        let (mine, theirs) = (grant(&backend, &one).await, grant(&backend, &other).await);
        let value: String = server.tell(&["GET", KEY]);
        let lines: Vec<&str> = value.lines().collect();
        assert_eq!(lines[0], "readers");
        for (line, held) in lines[1..].iter().zip([&mine, &theirs]) {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[0], held.claim.to_string());
            assert_eq!(words[2..4], [&held.token.get().to_string(), "1"]);
        }
        assert_eq!(lines.len(), 3);
        // Others of the documented pattern find a key.
        assert_eq!(server.tell::<Option<String>>(&["SET", KEY, "foreign", "NX", "PX", "1000"]), None);
        assert!(left(&server) > LEASE * 3 / 2, "the longest lease counts");
        assert_eq!(backend.release(&theirs).await.unwrap(), Release::Released { awaited: false });
        assert!(left(&server) <= LEASE);
        assert_eq!(grant(&backend, &one).await.token, mine.token, "asked again, it is granted again");
        backend.release(&mine).await.unwrap();
        assert_eq!(server.tell::<u64>(&["EXISTS", KEY]), 0);
        let some = grant(&backend, &permits(2, 3)).await;
        assert!(server.tell::<String>(&["GET", KEY]).starts_with("permits of 3\n"));
        // Deleted without a word.
        server.tell::<()>(&["DEL", KEY]);
        assert!(matches!(backend.renew(std::slice::from_ref(&some)).await.unwrap()[..], [Renewal::Lost(_)]));
        assert!(is_free(&backend, &claim("a", LEASE)).await);
    }
}

#[tokio::test]
async fn each_lease_ends_by_itself() {
    let server = Server::start();
    for backend in both(&server).await {
        let short = grant(&backend, &reader(Duration::from_millis(300))).await;
        let long = grant(&backend, &reader(LEASE)).await;
        let begin = Instant::now();
        tokio::time::sleep(Duration::from_millis(320)).await;
        let shorter = Grant { lease: Duration::from_millis(400), ..long };
        let [Renewal::Lost(_), Renewal::Renewed] =
            backend.renew(&[short.clone(), shorter]).await.unwrap()[..]
        else {
            panic!("one of two has ended")
        };
        assert!(matches!(backend.release(&short).await.unwrap(), Release::Lost(_)));
        until("all have ended", || server.tell::<u64>(&["EXISTS", KEY]) == 0).await;
        assert!(begin.elapsed() < LEASE / 2, "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn one_call_renews_them_all() {
    let server = Server::start();
    for backend in both(&server).await {
        let alone = grant(&backend, &claim("b", LEASE)).await;
        let mut grants = vec![alone];
        for _ in 0..3 {
            grants.push(grant(&backend, &reader(LEASE)).await);
        }
        grants.push(grant(&backend, &Claim { name: Name::new("c").unwrap(), ..permits(1, 2) }).await);
        server.tell::<()>(&["PEXPIRE", KEY, "5000"]);
        assert_eq!(backend.renew(&grants).await.unwrap(), [Renewal::Renewed; 5]);
        assert!(left(&server) > LEASE / 2);
        for grant in grants {
            backend.release(&grant).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_writer_becomes_a_reader_and_back() {
    let server = Server::start();
    for backend in both(&server).await {
        let held = grant(&backend, &claim("a", LEASE)).await;
        for _ in 0..2 {
            assert_eq!(backend.convert(&held, Mode::Shared).await.unwrap(), Conversion::Converted);
        }
        let mut shared = Grant { mode: Mode::Shared, ..held.clone() };
        assert!(left(&server) > LEASE * 3 / 4 && left(&server) <= LEASE);
        let other = grant(&backend, &reader(LEASE)).await;
        assert_eq!(backend.convert(&shared, Mode::Exclusive).await.unwrap(), Conversion::Refused);
        backend.release(&other).await.unwrap();
        for _ in 0..2 {
            assert_eq!(backend.convert(&shared, Mode::Exclusive).await.unwrap(), Conversion::Converted);
        }
        shared.mode = Mode::Exclusive;
        let [seen] = &backend.holders(&shared.name).await.unwrap()[..] else { panic!("one holder") };
        assert_eq!(
            (seen.claim, seen.token, seen.mode),
            (Some(held.claim), Some(held.token), Mode::Exclusive)
        );
        assert!(!is_free(&backend, &reader(LEASE)).await && !is_free(&backend, &claim("a", LEASE)).await);
        assert_eq!(backend.renew(std::slice::from_ref(&shared)).await.unwrap(), [Renewal::Renewed]);
        assert_eq!(
            backend.convert(&other, Mode::Exclusive).await.unwrap(),
            Conversion::Lost(LossCause::TakenOver)
        );
        assert_eq!(backend.release(&shared).await.unwrap(), Release::Released { awaited: false });
        assert!(grant(&backend, &claim("a", LEASE)).await.token > other.token, "tokens rise");
        server.tell::<()>(&["DEL", KEY]);
    }
}

#[tokio::test]
async fn a_waiting_writer_stops_newcomers_for_as_long_as_it_waits() {
    let server = Server::start();
    let (backend, other) = (server.backend().await, server.locks().await);
    let first = grant(&backend, &reader(LEASE)).await;
    assert!(
        !is_free(&backend, &claim("a", LEASE)).await && is_free(&backend, &reader(LEASE)).await,
        "it only tried"
    );
    let waits = |locks: &Locks| {
        let lock = locks.rw("a").write();
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let writer = waits(&other);
    until("it stops newcomers", || server.tell::<u64>(&["EXISTS", STOP]) == 1).await;
    assert!(!is_free(&backend, &reader(LEASE)).await);
    assert!(server.tell::<i64>(&["PTTL", STOP]) <= 2500);
    // It is refreshed, if a little late on a busy machine, and goes with the writer.
    tokio::time::sleep(Duration::from_secs(3)).await;
    until("it stops newcomers still", || server.tell::<i64>(&["PTTL", STOP]) > 1500).await;
    assert!(!is_free(&backend, &reader(LEASE)).await, "newcomers pass a writer that waits");
    backend.release(&first).await.unwrap();
    let guard = writer.await.unwrap();
    assert_eq!(server.tell::<u64>(&["EXISTS", STOP]), 0);
    guard.release().await.unwrap();
    // So it does when the writer gives up: those who wait are told at once.
    let listeners = || server.tell::<(String, u64)>(&["PUBSUB", "NUMSUB", KEY]).1;
    let mut delays = Vec::new();
    for _ in 0..3 {
        until("the channel is left", || listeners() == 0).await;
        let (first, writer) = (grant(&backend, &reader(LEASE)).await, waits(&other));
        until("it stops newcomers", || server.tell::<u64>(&["EXISTS", STOP]) == 1).await;
        let newcomer = tokio::spawn({
            let lock = server.locks().await.rw("a").read();
            async move { lock.acquire().await.unwrap() }
        });
        until("the newcomer listens", || listeners() == 2).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!newcomer.is_finished());
        let given_up = Instant::now();
        writer.abort();
        newcomer.await.unwrap().release().await.unwrap();
        delays.push(given_up.elapsed());
        backend.release(&first).await.unwrap();
    }
    assert!(typical(delays) < NO_POLL);
}

/// A writer that died is waited for no longer than its mark stands, and a reader asks again just then.
#[tokio::test]
async fn a_dead_writer_stops_newcomers_for_a_moment() {
    let server = Server::start();
    let (backend, locks) = (server.backend().await, server.locks().await);
    let mut delays = Vec::new();
    for _ in 0..3 {
        let (first, dead) = (grant(&backend, &reader(LEASE)).await, server.backend().await);
        let writer = Claim { waits: true, ..claim("a", LEASE) };
        let task = tokio::spawn(async move { dead.acquire(&writer).await.map(drop) });
        until("it stops newcomers", || server.tell::<u64>(&["EXISTS", STOP]) == 1).await;
        task.abort();
        // Sooner than a reader asks again by itself.
        until("the mark is nearly over", || server.tell::<i64>(&["PTTL", STOP]) < 300).await;
        let begin = Instant::now();
        let guard = locks.rw("a").read().acquire().await.unwrap();
        delays.push(begin.elapsed());
        guard.release().await.unwrap();
        backend.release(&first).await.unwrap();
    }
    assert!(typical(delays) < NO_POLL);
}

#[tokio::test]
async fn a_semaphore_has_one_size() {
    let server = Server::start();
    for backend in both(&server).await {
        let held = grant(&backend, &permits(1, 4)).await;
        let error = backend.try_acquire(&permits(1, 7)).await.unwrap_err();
        assert!(!error.is_unavailable() && error.to_string().contains("4 permits"), "{error}");
        assert!(!is_free(&backend, &permits(4, 4)).await && is_free(&backend, &permits(3, 4)).await);
        assert!(!is_free(&backend, &reader(LEASE)).await && !is_free(&backend, &claim("a", LEASE)).await);
        backend.release(&held).await.unwrap();
        assert!(is_free(&backend, &permits(1, 7)).await);
    }
}

#[tokio::test]
async fn all_who_are_put_out_are_told_why() {
    let server = Server::start();
    for backend in both(&server).await {
        // More than there are withdrawals that are remembered.
        let mut held = Vec::new();
        for _ in 0..60 {
            held.push(grant(&backend, &reader(LEASE)).await);
        }
        let put_out = backend.force_release(&held[0].name).await.unwrap();
        assert_eq!(
            put_out.iter().map(|holder| holder.claim).collect::<Vec<_>>(),
            held.iter().map(|grant| Some(grant.claim)).collect::<Vec<_>>()
        );
        assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Lost(LossCause::Forced); 60]);
        assert!(is_free(&backend, &claim("a", LEASE)).await);
    }
}

/// A ghost: the request of a reader that gave up comes late, and finds itself withdrawn.
#[tokio::test]
async fn a_late_reader_is_not_let_in() {
    let server = Server::start();
    for fair in [false, true] {
        let proxy = Proxy::to(server.port).await;
        let options = RedisOptions::from_url(&proxy.url()).unwrap().fair(fair);
        let backend = RedisBackend::connect(options.response_timeout(Duration::from_secs(3))).await.unwrap();
        grant(&backend, &Claim { name: Name::new("warm up").unwrap(), ..reader(LEASE) }).await;
        let (held, given_up) = (proxy.hold(), reader(LEASE));
        assert!(backend.try_acquire(&given_up).await.unwrap_err().is_unavailable());
        backend.withdraw(&given_up).await.unwrap();
        let before = server.calls(&["evalsha"]);
        held.let_go();
        until("the ghost comes", || server.calls(&["evalsha"]) > before).await;
        assert_eq!(server.tell::<u64>(&["EXISTS", KEY]), 0, "a ghost reads");
        server.tell::<()>(&["FLUSHALL"]);
    }
}

/// A client of its own that waits, once it stands in the queue.
async fn queued(server: &Server, mode: Mode) -> JoinHandle<Guard> {
    queued_with(server.options(), server, mode).await
}

/// The same, with these options.
async fn queued_with(options: RedisOptions, server: &Server, mode: Mode) -> JoinHandle<Guard> {
    let before: u64 = server.tell(&["ZCARD", QUEUE]);
    let locks = Locks::new(RedisBackend::connect(options.fair(true)).await.unwrap());
    let lock = match mode {
        Mode::Exclusive => locks.rw("a").write(),
        Mode::Permit { take, of } => locks.semaphore("a", of.get()).permits(take.get()),
        _ => locks.rw("a").read(),
    };
    let task = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it stands in the queue", || server.tell::<u64>(&["ZCARD", QUEUE]) == before + 1).await;
    task
}

#[tokio::test]
async fn the_queue_is_served_in_order_and_readers_together() {
    let server = Server::start();
    let [_, fair] = both(&server).await;
    let proxy = Proxy::to(server.port).await;
    let queued = |mode| queued_with(RedisOptions::from_url(&proxy.url()).unwrap(), &server, mode);
    // From now on a release is one call, because the server has heard of the script.
    assert!(is_free(&fair, &claim("a", LEASE)).await);
    let held = grant(&fair, &claim("a", LEASE)).await;
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(queued(Mode::Shared).await);
    }
    let (writer, last) = (queued(Mode::Exclusive).await, queued(Mode::Shared).await);
    // Nobody renews or shows up meanwhile, so who is not told does not come at all.
    let held_up = proxy.hold_all();
    let mut called = server.scripts_called();
    let before = called();
    fair.release(&held).await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(tokio::time::timeout(Duration::from_secs(5), reader).await.unwrap().unwrap());
    }
    assert_eq!(called() - before, 1, "one release lets all in");
    assert!(guards.is_sorted_by_key(|guard| guard.token()), "in order");
    assert!(guards.iter().all(|guard| guard.deadline().unwrap().left() < Duration::from_secs(1)));
    held_up.let_go();
    // Those behind have just shown up then, and do so again a second later.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(
        !writer.is_finished() && !last.is_finished(),
        "somebody passed the writer, or it passed the readers"
    );
    assert!(guards.iter().all(|guard| guard.is_held()), "a reader did not renew what it was handed");
    let most = guards.iter().map(|guard| guard.token()).max();
    for guard in guards {
        guard.release().await.unwrap();
    }
    let writer = tokio::time::timeout(NO_SHOW_UP, writer).await.unwrap().unwrap();
    assert!(Some(writer.token()) > most && !last.is_finished());
    writer.release().await.unwrap();
    tokio::time::timeout(NO_SHOW_UP, last).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.tell::<u64>(&["EXISTS", KEY, QUEUE]), 0);
}

#[tokio::test]
async fn nobody_overtakes_one_who_waits_for_many_permits() {
    let server = Server::start();
    let [_, fair] = both(&server).await;
    let mut delays = Vec::new();
    for _ in 0..3 {
        let held = [grant(&fair, &permits(2, 4)).await, grant(&fair, &permits(1, 4)).await];
        let many = queued(&server, permits(3, 4).mode).await;
        let one = queued(&server, permits(1, 4).mode).await;
        assert!(!is_free(&fair, &permits(1, 4)).await, "a try overtook the queue");
        fair.release(&held[1]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!many.is_finished() && !one.is_finished());
        let released = Instant::now();
        fair.release(&held[0]).await.unwrap();
        let (many, one) = (many.await.unwrap(), one.await.unwrap());
        delays.push(released.elapsed());
        assert!(one.token() > many.token());
        give_back(one).await;
        give_back(many).await;
    }
    assert!(typical(delays) < NO_SHOW_UP);
}

#[tokio::test]
async fn those_behind_a_writer_that_gave_up_are_let_in() {
    let server = Server::start();
    let [_, fair] = both(&server).await;
    let (mut behind, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let held = grant(&fair, &reader(LEASE)).await;
        let (writer, next) = (queued(&server, Mode::Exclusive).await, queued(&server, Mode::Shared).await);
        let given_up = Instant::now();
        writer.abort();
        let next = next.await.unwrap();
        behind.push(given_up.elapsed());
        give_back(next).await;
        // A downgrade lets those in who read, and no more.
        fair.release(&held).await.unwrap();
        let mut held = grant(&fair, &claim("a", LEASE)).await;
        let (next, writer) = (queued(&server, Mode::Shared).await, queued(&server, Mode::Exclusive).await);
        let converted = Instant::now();
        assert_eq!(fair.convert(&held, Mode::Shared).await.unwrap(), Conversion::Converted);
        held.mode = Mode::Shared;
        let next = next.await.unwrap();
        beside.push(converted.elapsed());
        fair.release(&held).await.unwrap();
        let is_let_in = writer.is_finished();
        assert!(!is_let_in || !next.is_held(), "a writer beside a reader");
        give_back(next).await;
        give_back(writer.await.unwrap()).await;
    }
    assert!(typical(behind) < NO_SHOW_UP);
    assert!(typical(beside) < NO_SHOW_UP);
}
