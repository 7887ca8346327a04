//! Readers and permits: what stands in the store.

use crate::{LEASE, claim_in, grant, permits, server::Server};
use std::time::Duration;
use tenure_core::{Backend, Claim, LossCause, Mode, Release, Renewal};

const KEY: &str = "tenure:a";

fn left(server: &Server) -> Duration {
    Duration::from_millis(server.tell::<u64>(&["PTTL", KEY]))
}

#[tokio::test]
async fn value_says_how_it_is_held_and_by_whom() {
    let server = Server::start();
    for backend in server.both().await {
        let reader = |lease| Claim { lease, ..claim_in(Mode::Shared, "a") };
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
        let some = grant(&backend, &claim_in(permits(2, 3), "a")).await;
        assert!(server.tell::<String>(&["GET", KEY]).starts_with("permits of 3\n"));
        // Deleted without a word.
        server.tell::<()>(&["DEL", KEY]);
        assert!(matches!(backend.renew(std::slice::from_ref(&some)).await.unwrap()[..], [Renewal::Lost(_)]));
        let next = grant(&backend, &claim_in(Mode::Exclusive, "a")).await;
        backend.release(&next).await.unwrap();
    }
}

/// More than there are withdrawals that are remembered.
#[tokio::test]
async fn sixty_readers_put_out_by_force_are_told_so() {
    let server = Server::start();
    for backend in server.both().await {
        let mut held = Vec::new();
        for _ in 0..60 {
            held.push(grant(&backend, &claim_in(Mode::Shared, "a")).await);
        }
        assert_eq!(backend.force_release(&held[0].name).await.unwrap().len(), 60);
        assert_eq!(backend.renew(&held).await.unwrap(), [Renewal::Lost(LossCause::Forced); 60]);
    }
}
