//! Foreign data in tenure's keys never counts as a free lock.

use crate::{acquires, claim, granted, permits, server::Server, until};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tenure_core::{
    Attempt, Backend, Claim, Conversion, Grant, LatchStep, Mode, Moment, Name, Release, Renewal, StoreError,
    Token,
};
use tenure_redis::{RedisBackend, RedisOptions};

const KEY: &str = "tenure:a";
const RECORD: &str = "tenure:a\u{1f}{tenure:a}r";
const LATCH: &str = "tenure:a\u{1f}{tenure:a}l";
const QUEUE: &str = "tenure:a\u{1f}{tenure:a}q";
const WAITERS: &str = "tenure:a\u{1f}{tenure:a}w";
/// The greatest number up to which Lua counts in ones.
const MOST: u64 = (1 << 53) - 1;

/// The name, what is wrong, and what to do.
fn names_the_record(error: &StoreError) {
    let text = error.to_string();
    assert!(!error.is_unavailable(), "{text}");
    for part in [&format!("{RECORD:?}"), "2^53 - 1", "delete that key"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn a_counter_beyond_what_redis_counts_is_refused() {
    let server = Server::start();
    for backend in server.both().await {
        for record in [
            format!("{MOST} somebody 1 host "),
            format!("{} somebody 1 host ", MOST + 1),
            format!("{} somebody 1 host ", i64::MAX),
            format!("{}0 somebody 1 host ", u64::MAX),
            // Smaller as text than what the clock shows.
            "17000000000000000 somebody 1 host ".to_owned(),
            format!("{} somebody 1 host \n-other 99999999999", MOST + 2),
            "abc".to_owned(),
            "1abc".to_owned(),
            "-5 somebody 1 host ".to_owned(),
            "1e99 somebody 1 host ".to_owned(),
        ] {
            server.tell::<()>(&["SET", RECORD, &record]);
            for mode in [Mode::Exclusive, Mode::Shared, permits(1, 2)] {
                let refused = backend.try_acquire(&Claim { mode, ..claim("a") }).await;
                names_the_record(&refused.expect_err(&record));
                assert_eq!(server.tell::<u64>(&["EXISTS", KEY]), 0, "{record}: something is held");
                assert_eq!(server.tell::<String>(&["GET", RECORD]), record);
            }
        }
        server.tell::<()>(&["DEL", RECORD]);
        server.tell::<()>(&["LPUSH", RECORD, "x"]);
        names_the_record(&backend.try_acquire(&claim("a")).await.unwrap_err());
        assert_eq!(server.tell::<u64>(&["EXISTS", KEY]), 0);
        server.tell::<()>(&["DEL", RECORD]);
        let held = granted(&backend, &claim("a")).await;
        backend.release(&held).await.unwrap();
        server.tell::<()>(&["DEL", RECORD]);
    }
}

#[tokio::test]
async fn the_counter_counts_as_far_as_it_can() {
    let server = Server::start();
    for backend in server.both().await {
        server.tell::<()>(&["SET", RECORD, &format!("{} somebody 1 host ", MOST - 2)]);
        for expected in [MOST - 1, MOST] {
            let held = granted(&backend, &claim("a")).await;
            assert_eq!(held.token.get(), expected);
            // Asked again, it has the same.
            let again = Claim { id: held.claim, ..claim("a") };
            assert_eq!(granted(&backend, &again).await.token, held.token);
            backend.release(&held).await.unwrap();
        }
        names_the_record(&backend.try_acquire(&claim("a")).await.unwrap_err());
        // A smaller number than the clock's, however it is written, is nothing to go on from.
        for small in ["5", "0", "00000000000000000000000000007", "999999999999999"] {
            server.tell::<()>(&["SET", RECORD, &format!("{small} somebody 1 host ")]);
            let held = granted(&backend, &claim("a")).await;
            assert!(held.token.get() > 1_700_000_000_000_000, "{small}: {}", held.token);
            backend.release(&held).await.unwrap();
        }
        server.tell::<()>(&["DEL", RECORD]);
    }
}

#[tokio::test]
async fn no_tokens_are_reserved_beyond_what_redis_counts() {
    let server = Server::start();
    let (backend, reserve) = (server.backend().await, 16);
    let reserving = || Claim { reserve, ..claim("a") };
    for last in [(MOST - 16).to_string(), MOST.to_string(), u64::MAX.to_string(), "9".repeat(400)] {
        let record = format!("{last} somebody 1 host ");
        server.tell::<()>(&["SET", RECORD, &record]);
        names_the_record(&backend.try_acquire(&reserving()).await.expect_err(&record));
        assert_eq!(server.tell::<u64>(&["EXISTS", KEY]), 0, "{record}: something is held");
        assert_eq!(server.tell::<String>(&["GET", RECORD]), record);
    }
    server.tell::<()>(&["SET", RECORD, &format!("{} somebody 1 host ", MOST - 17)]);
    let held = granted(&backend, &reserving()).await;
    assert_eq!((held.token.get(), held.reserved), (MOST, reserve));
}

#[tokio::test]
async fn a_counter_that_was_changed_under_its_holder_is_not_granted_again() {
    let server = Server::start();
    for backend in server.both().await {
        let asked = claim("a");
        let held = granted(&backend, &asked).await;
        server.tell::<()>(&["SET", RECORD, &format!("{} {} 1 host ", MOST + 1, asked.id)]);
        names_the_record(&backend.try_acquire(&asked).await.unwrap_err());
        assert_eq!(backend.renew(std::slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
        assert!(matches!(backend.release(&held).await.unwrap(), Release::Released { .. }));
        server.tell::<()>(&["DEL", RECORD]);
    }
}

#[tokio::test]
async fn several_at_once_name_the_one_that_is_wrong() {
    let server = Server::start();
    let backend = server.backend().await;
    server.tell::<()>(&["SET", RECORD, &format!("{} somebody 1 host ", MOST + 1)]);
    for names in [["a", "b"], ["A", "a"]] {
        let claims = names.map(claim);
        names_the_record(&backend.try_acquire_all(&claims).await.unwrap_err());
        let keys: Vec<String> = server.tell(&["KEYS", "tenure:?"]);
        assert_eq!(keys, [""; 0], "one of them is held");
    }
}

/// The release is none of its concern; who waits is told when it next asks.
#[tokio::test]
async fn a_release_does_not_stumble_over_a_counter() {
    let server = Server::start();
    let fair = server.fair().await;
    let held = granted(&fair, &claim("a")).await;
    let waiter = acquires(&fair, &Claim { waits: true, ..claim("a") });
    until("it waits", || server.tell::<u64>(&["ZCARD", QUEUE]) == 1).await;
    server.tell::<()>(&["SET", RECORD, &format!("{} somebody 1 host ", MOST + 1)]);
    assert!(matches!(fair.release(&held).await.unwrap(), Release::Released { .. }));
    names_the_record(&waiter.await.unwrap().unwrap_err());
    assert_eq!(server.tell::<u64>(&["EXISTS", KEY]), 0);
}

/// Another type at any of the keys: an error that names it, or no matter; what is held is given back all the same.
#[tokio::test]
async fn keys_of_another_type() {
    let server = Server::start();
    for backend in server.both().await {
        let held = granted(&backend, &claim("a")).await;
        server.tell::<()>(&["DEL", RECORD]);
        server.tell::<()>(&["LPUSH", RECORD, "x"]);
        assert_eq!(backend.renew(std::slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
        assert_eq!(backend.holders(&held.name).await.unwrap().len(), 1);
        assert_eq!(backend.convert(&held, Mode::Shared).await.unwrap(), Conversion::Converted);
        assert_eq!(backend.force_release(&held.name).await.unwrap().len(), 1);
        backend.withdraw(&claim("a")).await.unwrap();
        assert_eq!(server.tell::<u64>(&["LLEN", RECORD]), 1, "another's data is gone");
        server.tell::<()>(&["DEL", RECORD]);
        server.tell::<()>(&["LPUSH", KEY, "x"]);
        let shown = backend.holders(&held.name).await.unwrap_err();
        assert!(
            shown.to_string().contains("\"tenure:a\", or a key of tenure's beside it, holds no lock"),
            "{shown}"
        );
        assert_eq!(backend.list("").await.unwrap(), []);
        for mode in [Mode::Exclusive, Mode::Shared, permits(1, 2)] {
            backend.try_acquire(&Claim { mode, ..claim("a") }).await.unwrap_err();
        }
        server.tell::<()>(&["DEL", KEY]);
        server.tell::<()>(&["SET", LATCH, "x"]);
        let latch = backend.latch(&held.name, &LatchStep::Look).await.unwrap_err();
        assert!(latch.to_string().contains(&format!("{LATCH:?}")), "{latch}");
        for of in ["0", "-1", "0.5", "abc", "", "4294967296", "99999999999999999999999", "nan", "1e3"] {
            server.tell::<()>(&["DEL", LATCH]);
            server.tell::<()>(&["HSET", LATCH, "of", of]);
            let looked = backend.latch(&held.name, &LatchStep::Look).await;
            assert!(looked.is_err(), "{of:?} parties: {looked:?}");
        }
        server.tell::<()>(&["FLUSHALL"]);
    }
}

/// A value that is nearly one of ours: lines that are well formed, and at least one part that is not.
fn spoilt() -> impl Strategy<Value = String> {
    let line = || {
        let claim = prop_oneof![Just("6f1c2b3a-0000-4000-8000-000000000000".to_owned()), "[^\\n]{0,12}"];
        let till = prop_oneof![
            Just("1600000000000".to_owned()),
            Just("9007199254740993".to_owned()),
            Just("0001600000000000".to_owned()),
            Just("16".to_owned()),
            "[0-9+. -]{0,24}"
        ];
        let number = || prop_oneof![Just("1".to_owned()), "[0-9]{0,30}", "[^\\n]{0,4}"];
        (claim, till, number(), number(), "[^\\n]{0,12}")
            .prop_map(|(claim, till, token, take, told)| format!("{claim} {till} {token} {take} {told}"))
    };
    let ended = "6f1c2b3a-0000-4000-8000-000000000000 1600000000000 1600000000000000 1 7 host ";
    let how = prop_oneof![
        3 => Just("readers".to_owned()),
        2 => Just("permits of 2".to_owned()),
        1 => "permits of [0-9x]{0,12}",
        1 => "[a-z 0-9]{0,12}",
        1 => "[^\\n]{0,8}",
    ];
    let odd = prop_oneof![line(), "[^\\n]{0,20}", Just(String::new()), Just("\r".to_owned())];
    let lines = prop::collection::vec(prop_oneof![Just(ended.to_owned()), odd], 0..4);
    (how, lines).prop_map(|(how, lines)| [vec![how], lines].concat().join("\n"))
}

/// Whether every part of a value is as tenure writes it, and all leases have ended. Then the name is free.
fn is_over(value: &str) -> bool {
    let Some((how, lines)) = value.split_once('\n') else { return false };
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let counts =
        |how: &str| how.strip_prefix("permits of ").is_some_and(|of| is_number(of) && !of.starts_with('0'));
    let ended = |line: &str| {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [claim, till, token, take, _] = words[..] else { return false };
        let blank = |c: char| c.is_ascii_whitespace() || c == '\u{b}';
        !claim.is_empty()
            && !claim.contains(blank)
            && [till, token, take].into_iter().all(is_number)
            && till.len() == 13
            && till < "1700000000000"
    };
    (matches!(how, "alone" | "readers") || counts(how)) && lines.split('\n').all(ended)
}

#[test]
fn garbage_at_the_lock_is_never_taken_for_a_lock_that_is_free() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let backends = runtime.block_on(server.both());
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let held = |value: String| {
        let stranger = claim("a");
        for backend in &backends {
            server.tell::<()>(&["SET", KEY, &value, "PX", "20000"]);
            runtime.block_on(async {
                let holders = backend.holders(&stranger.name).await.unwrap();
                assert!(!holders.is_empty() || is_over(&value), "{value:?} is shown as free");
                let lost = Grant::leased(&stranger, Token::MIN, Moment::now());
                let renewed = backend.renew(std::slice::from_ref(&lost)).await.unwrap();
                assert!(matches!(renewed[..], [Renewal::Lost(_)]), "{renewed:?}");
                assert!(matches!(backend.release(&lost).await.unwrap(), Release::Lost(_)));
                assert!(matches!(backend.convert(&lost, Mode::Shared).await, Ok(Conversion::Lost(_))));
                backend.withdraw(&stranger).await.unwrap();
                for mode in [Mode::Shared, permits(1, 2), permits(1, 3), Mode::Exclusive] {
                    let asked = Claim { mode, ..claim("a") };
                    // Only ended leases let a claim in.
                    if let Ok(Attempt::Granted(granted)) = backend.try_acquire(&asked).await {
                        assert!(is_over(&value), "{mode:?} was granted beside {value:?}");
                        backend.release(&granted).await.unwrap();
                        server.tell::<()>(&["SET", KEY, &value, "PX", "20000"]);
                    }
                }
            });
            assert_eq!(server.tell::<String>(&["GET", KEY]), value, "a value of another program was changed");
        }
        Ok(())
    };
    TestRunner::new(config).run(&spoilt(), held).unwrap();
}

#[test]
fn garbage_in_the_record_gives_no_token_that_is_not_greater() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let backends = runtime.block_on(server.both());
    let record = prop_oneof![
        "[0-9]{0,25} [^\\n]{0,10}",
        "[0-9]{14,17} somebody 1 host (\n[-!+#]?[^\\n]{0,12} [0-9]{0,20}){0,3}",
        any::<String>()
    ];
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let granted = |record: String| {
        for backend in &backends {
            server.tell::<()>(&["SET", RECORD, &record]);
            let clock: [u64; 2] = server.tell(&["TIME"]);
            let number = record.split(' ').next().and_then(|digits| digits.parse::<u64>().ok());
            runtime.block_on(async {
                match backend.try_acquire(&claim("a")).await {
                    Ok(Attempt::Granted(held)) => {
                        assert!(held.token.get() >= clock[0] * 1_000_000 + clock[1]);
                        assert!(number.is_none_or(|number| number < held.token.get()), "{}", held.token);
                        backend.holders(&held.name).await.unwrap();
                        assert!(matches!(backend.release(&held).await.unwrap(), Release::Released { .. }));
                    }
                    Ok(busy @ Attempt::Busy { .. }) => panic!("{busy:?}"),
                    Err(error) => names_the_record(&error),
                }
            });
            assert_eq!(server.tell::<u64>(&["EXISTS", KEY]), 0);
        }
        Ok(())
    };
    TestRunner::new(config).run(&record, granted).unwrap();
}

#[test]
fn garbage_in_the_queue_keeps_nobody_out() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fair = runtime.block_on(server.fair());
    let waiter = prop_oneof![
        "[0-9]{0,20} [0-9]{0,20} [0-9]{0,5} (alone|readers|permits of [0-9]{0,3})\n[^\\n]{0,9}\n.{0,9}",
        any::<String>()
    ];
    let queue = prop::collection::vec(("[^\\n ]{1,9}", any::<i64>(), waiter), 1..4);
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let granted = |queue: Vec<(String, i64, String)>| {
        for (claim, score, waiter) in &queue {
            server.tell::<()>(&["ZADD", QUEUE, &score.to_string(), claim]);
            server.tell::<()>(&["HSET", WAITERS, claim, waiter]);
        }
        runtime.block_on(async {
            let held = granted(&fair, &claim("a")).await;
            assert!(matches!(fair.release(&held).await.unwrap(), Release::Released { .. }));
        });
        server.tell::<()>(&["DEL", QUEUE, WAITERS]);
        Ok(())
    };
    TestRunner::new(config).run(&queue, granted).unwrap();
}

/// A prefix that other programs use too.
#[tokio::test]
async fn the_names_of_keys_may_be_anything() {
    let server = Server::start();
    let backend = RedisBackend::connect(RedisOptions::from_url(&server.url()).unwrap()).await.unwrap();
    let mut connection = server.connection();
    for key in [&b"tenure:\xff\xfe"[..], b"tenure:", b"tenure:\n", b"tenure:\x1f", b"tenure:{", b"tenure:ok"]
    {
        redis::cmd("SET").arg(key).arg(&b"\xff\x00\n\xff"[..]).exec(&mut connection).unwrap();
    }
    redis::cmd("SET").arg(format!("tenure:{}", "x".repeat(300))).arg("x").exec(&mut connection).unwrap();
    let listed = backend.list("").await.unwrap();
    let names: Vec<&str> = listed.iter().map(|holder| &*holder.name).collect();
    assert_eq!(names, ["ok", "{"]);
    assert!(matches!(
        backend.try_acquire(&Claim { name: Name::new("ok").unwrap(), ..claim("a") }).await.unwrap(),
        Attempt::Busy { expires_in: None }
    ));
}
