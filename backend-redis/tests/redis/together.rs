//! Requests about many names at once. Calls of the same script are sent as one.

use crate::{HANG, LEASE, acquires, claim, cut, granted, proxy_to, server::Server, until};
use futures_util::future::join_all;
use std::collections::HashSet;
use tenure_conformance::{proxy::Flow, saboteur::Direction};
use tenure_core::{Attempt, Backend, Claim, Grant, Mode, Release, StoreError};
use tenure_redis::{RedisBackend, RedisOptions};

const NAMES: usize = 64;

fn claims(mode: Mode) -> Vec<Claim> {
    (0..NAMES).map(|number| Claim { mode, ..claim(&format!("n{number}")) }).collect()
}

/// In one task, so that all are asked for before any is answered.
async fn ask(backend: &RedisBackend, claims: &[Claim]) -> Vec<Result<Attempt, StoreError>> {
    join_all(claims.iter().map(|claim| backend.try_acquire(claim))).await
}

async fn all_granted(backend: &RedisBackend, claims: &[Claim]) -> Vec<Grant> {
    let granted = |(attempt, claim): (Result<Attempt, StoreError>, &Claim)| match attempt {
        Ok(Attempt::Granted(grant)) => {
            assert_eq!((&grant.name, grant.claim), (&claim.name, claim.id));
            grant
        }
        other => panic!("{:?} is free: {other:?}", claim.name),
    };
    ask(backend, claims).await.into_iter().zip(claims).map(granted).collect()
}

async fn all_released(backend: &RedisBackend, grants: &[Grant]) {
    for released in join_all(grants.iter().map(|grant| backend.release(grant))).await {
        assert_eq!(released.unwrap(), Release::Released { awaited: false });
    }
}

#[tokio::test]
async fn batch_takes_few_calls_and_is_answered_per_call() {
    let server = Server::start();
    let backend = server.backend().await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let claims = claims(mode);
        // Now the server knows the scripts.
        all_released(&backend, &all_granted(&backend, &claims).await).await;
        let before = server.scripts_called();
        let grants = all_granted(&backend, &claims).await;
        let asked = server.scripts_called() - before;
        assert!(asked <= 10, "{asked} calls for {NAMES} names");
        for grant in &grants {
            let holders = backend.holders(&grant.name).await.unwrap();
            assert_eq!((holders.len(), holders[0].token), (1, Some(grant.token)));
        }
        // Every name is still the one that is held, and with what was asked for.
        let before = server.scripts_called();
        all_released(&backend, &grants).await;
        let asked = server.scripts_called() - before;
        assert!(asked <= 10, "{asked} calls for {NAMES} names");
        for (again, before) in all_granted(&backend, &claims).await.iter().zip(&grants) {
            assert!(again.token > before.token);
            backend.release(again).await.unwrap();
        }
    }
}

/// One is held, one was withdrawn and comes late, one key is something else, and one may not be touched by this user, for
/// which the server refuses the whole call.
#[tokio::test]
async fn batch_error_is_reported_per_call() {
    let server = Server::start();
    let user = ["ACL", "SETUSER", "app", "on", ">zq7k2", "+@all", "&*", "~tenure:n*", "~tenure:\u{1f}*"];
    server.tell::<()>(&user);
    for (fair, mode) in [(false, Mode::Exclusive), (false, Mode::Shared), (true, Mode::Exclusive)] {
        let options = RedisOptions::from_url(&server.tcp_url()).unwrap().credentials("app", "zq7k2");
        let backend = RedisBackend::connect(options.fair(fair)).await.unwrap();
        let mut claims = claims(mode);
        all_released(&backend, &all_granted(&backend, &claims).await).await;
        granted(&server.backend().await, &claim("n20")).await;
        let record = "tenure:n30\u{1f}{tenure:n30}r";
        let last: String = server.tell(&["GET", record]);
        // As a withdrawal leaves it.
        server.tell::<()>(&["SET", record, &format!("{last}\n-{} 9999999999", claims[30].id)]);
        server.tell::<()>(&["RPUSH", "tenure:n40", "not a lock"]);
        for forbidden in [false, true] {
            if forbidden {
                claims[50] = Claim { mode, ..claim("other") };
            }
            for (number, attempt) in ask(&backend, &claims).await.into_iter().enumerate() {
                match (number, attempt) {
                    (20, Ok(Attempt::Busy { expires_in })) => {
                        assert!(expires_in.is_some_and(|left| left <= LEASE));
                    }
                    (30, Err(error)) => assert!(error.to_string().contains("was withdrawn"), "{error}"),
                    (40, Err(error)) => assert!(error.to_string().contains("tenure:n40"), "{error}"),
                    (50, Err(error)) if forbidden => {
                        assert!(error.to_string().contains("denies this user"), "{error}");
                    }
                    (20 | 30 | 40, other) => panic!("{number}, fair: {fair}: {other:?}"),
                    (_, Ok(Attempt::Granted(_))) => assert!(!forbidden || number != 50),
                    (_, other) => panic!("{number}, fair: {fair}: {other:?}"),
                }
            }
        }
        server.tell::<()>(&["FLUSHALL"]);
    }
}

/// Their requests are sent in one write, but not in one call: to the server's clock they would come in one moment.
#[tokio::test]
async fn waiters_that_ask_together_stand_in_order() {
    let server = Server::start();
    let backend = RedisBackend::connect(server.options().fair(true)).await.unwrap();
    granted(&backend, &claim("a")).await;
    let claims = |waits| -> Vec<Claim> { (0..20).map(|_| Claim { waits, ..claim("a") }).collect() };
    // Now the server knows the script.
    for attempt in ask(&backend, &claims(false)).await {
        assert!(matches!(attempt.unwrap(), Attempt::Busy { .. }));
    }
    // And the client listens already, because of a waiter that stays: otherwise some would hear of it sooner, and ask
    // first.
    granted(&backend, &claim("b")).await;
    let listener = acquires(&backend, &Claim { waits: true, ..claim("b") });
    until("it listens", || server.tell::<u64>(&["ZCARD", "tenure:b\u{1f}{tenure:b}q"]) == 1).await;
    let waiters = claims(true);
    let queue = || server.tell::<Vec<String>>(&["ZRANGE", "tenure:a\u{1f}{tenure:a}q", "0", "-1"]);
    tokio::select! {
        granted = join_all(waiters.iter().map(|claim| backend.acquire(claim))) => panic!("{granted:?}"),
        () = until("all stand in the queue", || queue().len() == waiters.len()) => {}
    }
    let expected: Vec<String> = waiters.iter().map(|claim| claim.id.to_string()).collect();
    assert_eq!(queue(), expected);
    listener.abort();
}

/// The server refuses every call, so the client does not ask again for each claim. It also refuses to choose a database.
#[tokio::test]
async fn busy_server_is_left_alone() {
    let server = Server::with(&["--lua-time-limit", "1"]);
    let options = RedisOptions::from_url(&format!("{}/2", server.tcp_url())).unwrap();
    let backend = RedisBackend::connect(options.response_timeout(HANG)).await.unwrap();
    let claims = claims(Mode::Exclusive);
    all_released(&backend, &all_granted(&backend, &claims).await).await;
    let (mut connection, mut other) = (server.connection(), server.connection());
    let script =
        std::thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection));
    let is_busy = || {
        let said = redis::cmd("PING").exec(&mut other);
        said.is_err_and(|error| error.code() == Some("BUSY"))
    };
    until("the script runs", is_busy).await;
    for attempt in ask(&backend, &claims).await {
        let error = attempt.unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains("is not ready"), "{error}");
    }
    // On the connection that replaces that one.
    let error = backend.try_acquire(&claims[0]).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    redis::cmd("SCRIPT").arg("KILL").exec(&mut other).unwrap();
    assert!(script.join().unwrap().is_err());
    let refused = server.rejected("evalsha");
    assert!((1..=10).contains(&refused), "{refused} calls for {NAMES} names");
    all_released(&backend, &all_granted(&backend, &claims).await).await;
}

/// The client knows the outcome of no call, so it asks for all again, and gets what was granted then.
#[tokio::test]
async fn lost_answer_is_asked_for_again_per_call() {
    let server = Server::start();
    let (proxy, options) = proxy_to(&server).await;
    // So patient that the answer is not given up before it is lost.
    let backend = RedisBackend::connect(options.response_timeout(HANG * 2)).await.unwrap();
    let claims = claims(Mode::Exclusive);
    all_released(&backend, &all_granted(&backend, &claims).await).await;
    proxy.set(Direction::Replies, Flow::Hold);
    let asking = tokio::spawn({
        let (backend, claims) = (backend.clone(), claims.clone());
        async move { all_granted(&backend, &claims).await }
    });
    let is_held =
        |claim: &Claim| server.tell::<u64>(&["EXISTS", &format!("tenure:{}", claim.name.as_str())]) == 1;
    until("the server granted them all", || claims.iter().all(is_held)).await;
    let record = |claim: &Claim| {
        let holders = server.tell::<String>(&["GET", &format!("tenure:{}", claim.name.as_str())]);
        assert_eq!(holders, claim.id.to_string());
    };
    claims.iter().for_each(record);
    cut(&proxy);
    proxy.set(Direction::Replies, Flow::Pass);
    let grants = asking.await.unwrap();
    let tokens: HashSet<_> = grants.iter().map(|grant| (&grant.name, grant.token)).collect();
    assert_eq!(tokens.len(), NAMES);
    all_released(&backend, &grants).await;
    assert!(!claims.iter().any(is_held), "something is left behind");
}
