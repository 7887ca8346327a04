//! Which master a client follows, with servers and sentinels whose answers the test chooses.

use super::*;
use crate::{
    connection::{
        dial::{Dial, Endpoint},
        failovers::Failovers,
        link::{Answer, Link},
    },
    requests::replies::any,
};
use std::sync::Mutex;
use tenure_core::Background;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    sync::{Notify, broadcast},
};

proptest::proptest! {
    #[test]
    fn sentinel_answers_never_panic(value in any::value()) {
        let _ = (known(&value), is_master(&value));
    }
}

#[test]
fn sentinel_answer_is_read() {
    let words = |words: &[&str]| {
        Value::Array(words.iter().map(|word| Value::BulkString(word.as_bytes().to_vec())).collect())
    };
    let said =
        words(&["name", "x", "ip", "10.0.0.1", "port", "6379", "flags", "master", "config-epoch", "7"]);
    assert_eq!(known(&said), Some(KnownMaster { host: "10.0.0.1".into(), port: 6379, epoch: 15 }));
    let leads = words(&["ip", "h", "port", "1", "flags", "master,failover_in_progress", "config-epoch", "7"]);
    assert_eq!(known(&leads).map(|known| known.epoch), Some(14));
    for nonsense in
        [words(&[]), words(&["ip"]), words(&["ip", "h", "port", "70000", "config-epoch", "7"]), Value::Nil]
    {
        assert_eq!(known(&nonsense), None);
    }
    assert!(is_master(&words(&["master", "0"])) && !is_master(&words(&["slave"])) && !is_master(&Value::Nil));
}

/// Serves all clients. The second word of a command, or its only one, is answered as `answer` says.
async fn serve(answer: impl Fn(&str) -> Option<String> + Clone + Send + 'static) -> u16 {
    serve_and_announce(answer, &broadcast::Sender::new(1)).await
}

/// The channel of failovers.
const CHANNEL: &str = "+switch-master";

/// Also sends announcements to the clients that have subscribed to them.
async fn serve_and_announce(
    answer: impl Fn(&str) -> Option<String> + Clone + Send + 'static,
    announcements: &broadcast::Sender<String>,
) -> u16 {
    let announcements = announcements.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (answer, announcements) = (answer.clone(), announcements.clone());
            tokio::spawn(async move {
                let (read, mut write) = client.split();
                let mut lines = BufReader::new(read).lines();
                let mut announced = None::<broadcast::Receiver<String>>;
                loop {
                    let said = tokio::select! {
                        line = lines.next_line() => match line.ok().flatten().as_deref() {
                            None => break,
                            Some("SETINFO") => Some("+OK\r\n".to_owned()),
                            Some(CHANNEL) => {
                                announced = Some(announcements.subscribe());
                                Some(message(&["subscribe", CHANNEL], ":1\r\n"))
                            }
                            Some("PING") if announced.is_some() => Some("*2\r\n$4\r\npong\r\n$0\r\n\r\n".to_owned()),
                            Some(line) => answer(line),
                        },
                        Ok(said) = async { announced.as_mut().expect("subscribed").recv().await },
                            if announced.is_some() =>
                        {
                            Some(message(&["message", CHANNEL, &said], ""))
                        }
                    };
                    if let Some(said) = said {
                        let _ = write.write_all(said.as_bytes()).await;
                    }
                }
            });
        }
    });
    port
}

/// An array of three: these words, and what follows.
fn message(words: &[&str], rest: &str) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*3\r\n{}{rest}", words.collect::<String>())
}

/// A master that answers `PING` with its name.
async fn master(name: &'static str) -> u16 {
    serve(move |word| match word {
        "ROLE" => Some("*1\r\n$6\r\nmaster\r\n".to_owned()),
        "PING" => Some(format!("+{name}\r\n")),
        _ => None,
    })
    .await
}

/// The port, the epoch and the flags of the master that a sentinel names. It answers with an error while there is none.
type Named = Arc<Mutex<Option<(u16, u64, &'static str)>>>;

async fn sentinel(port: u16, epoch: u64) -> (Address, Named) {
    let (address, named, _) = announcing(port, epoch, &broadcast::Sender::new(1)).await;
    (address, named)
}

/// A sentinel that announces failovers. The third part is notified each time it has been asked for the master.
async fn announcing(
    port: u16,
    epoch: u64,
    announcements: &broadcast::Sender<String>,
) -> (Address, Named, Arc<Notify>) {
    let asked = Arc::new(Notify::new());
    let is_asked = Arc::clone(&asked);
    let named: Named = Arc::new(Mutex::new(Some((port, epoch, "master"))));
    let knows = Arc::clone(&named);
    let says = move |word: &str| {
        if word != "MASTER" {
            return None;
        }
        is_asked.notify_one();
        let Some((port, epoch, flags)) = *knows.lock().unwrap() else {
            return Some("-ERR not now\r\n".to_owned());
        };
        let (port, epoch) = (port.to_string(), epoch.to_string());
        let words = ["ip", "127.0.0.1", "port", &port, "flags", flags, "config-epoch", &epoch];
        let words = words.map(|word| format!("${}\r\n{word}\r\n", word.len()));
        Some(format!("*8\r\n{}", words.concat()))
    };
    let port = serve_and_announce(says, announcements).await;
    (Address::Network { host: "127.0.0.1".into(), port, tls: false }, named, asked)
}

/// The way to the master that these sentinels name, which all links of a client share.
fn dial(sentinels: Vec<Address>) -> Dial {
    let access = Access {
        tls: false,
        certificates: Certificates::default(),
        login: RedisConnectionInfo::default(),
        sentinels: None,
    };
    let long = Duration::from_secs(20);
    Dial::new(Endpoint::Master(Arc::new(Sentinels::new(sentinels, "x".into(), access))), long, long)
}

/// Which master answers.
async fn answers(link: &Link) -> String {
    let Answer { value, .. } = link.ask(&redis::cmd("PING")).await.map_err(|failure| failure.error).unwrap();
    text(&value).unwrap().to_owned()
}

/// Only a test that hangs takes so long.
async fn in_time(what: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_mins(2), what).await.expect("it comes");
}

/// The sentinel that announced the new master does not answer, and the other one has not heard of it yet.
#[tokio::test]
async fn announced_master_is_looked_for_until_it_is_found() {
    let (old, new) = (master("old").await, master("new").await);
    let announcements = broadcast::Sender::new(1);
    let (one, named, asked) = announcing(old, 1, &announcements).await;
    let (two, _) = sentinel(old, 1).await;
    let dial = dial(vec![one, two]);
    let link = Link::new(dial.clone());
    assert_eq!(answers(&link).await, "old");
    asked.notified().await;
    let failovers = Failovers::of(&dial, &Background::new()).unwrap();
    let moved = dial.moved();
    failovers.listen();
    // It is subscribed, and has looked for an earlier failover.
    asked.notified().await;
    *named.lock().unwrap() = None;
    announcements.send(format!("x 127.0.0.1 {old} 127.0.0.1 {new}")).unwrap();
    in_time(asked.notified()).await;
    *named.lock().unwrap() = Some((new, 2, "master"));
    in_time(moved).await;
    assert_eq!(answers(&link).await, "new");
}

#[test]
fn announcement_of_this_service_is_read() {
    let dial = dial(Vec::new());
    let sentinels = dial.sentinels().unwrap();
    let named = Address::Network { host: "h".into(), port: 7, tls: false };
    assert_eq!(sentinels.announced("x o 1 h 7"), Some(named));
    for other in ["y o 1 h 7", "x o 1 h 70000", "x o 1 h", ""] {
        assert_eq!(sentinels.announced(other), None, "{other}");
    }
}

#[tokio::test]
async fn failover_before_the_subscription_is_noticed() {
    let (old, new) = (master("old").await, master("new").await);
    let (address, named) = sentinel(old, 1).await;
    let dial = dial(vec![address]);
    let link = Link::new(dial.clone());
    assert_eq!(answers(&link).await, "old");
    let moved = dial.moved();
    *named.lock().unwrap() = Some((new, 2, "master"));
    let failovers = Failovers::of(&dial, &Background::new()).unwrap();
    failovers.listen();
    in_time(moved).await;
    assert_eq!(answers(&link).await, "new");
}

#[tokio::test]
async fn outdated_sentinel_leads_no_connection_back() {
    let (old, new) = (master("old").await, master("new").await);
    let (one, ahead) = sentinel(new, 2).await;
    let (two, _behind) = sentinel(old, 1).await;
    let dial = dial(vec![one, two]);
    assert_eq!(answers(&Link::new(dial.clone())).await, "new");
    // From now on, only the other one counts.
    *ahead.lock().unwrap() = None;
    assert_eq!(answers(&Link::new(dial.clone())).await, "new");
    // All sentinels were set up anew: none knows of the second epoch.
    *ahead.lock().unwrap() = Some((old, 1, "master"));
    assert_eq!(answers(&Link::new(dial)).await, "old");
}

/// It has the new epoch before it names the new master.
#[tokio::test]
async fn sentinel_that_leads_a_failover_leads_no_connection_back() {
    let (old, new) = (master("old").await, master("new").await);
    let (one, _) = sentinel(new, 2).await;
    let (two, leader) = sentinel(old, 1).await;
    *leader.lock().unwrap() = Some((old, 2, "master,failover_in_progress"));
    for sentinels in [vec![one.clone(), two.clone()], vec![two, one]] {
        let dial = dial(sentinels);
        for _ in 0..2 {
            assert_eq!(answers(&Link::new(dial.clone())).await, "new");
        }
    }
}

#[tokio::test]
async fn request_is_sent_again_if_its_server_was_deposed() {
    let (asked, deposed) = (Arc::new(Notify::new()), Arc::new(Mutex::new(false)));
    let (hears, is_deposed) = (Arc::clone(&asked), Arc::clone(&deposed));
    let old = serve(move |word| match word {
        "ROLE" => Some("*1\r\n$6\r\nmaster\r\n".to_owned()),
        "PING" => Some("+old\r\n".to_owned()),
        // The first request is answered together with the second, which the test sends once there is a new master.
        "SLOW" => {
            hears.notify_one();
            is_deposed.lock().unwrap().then(|| "+old\r\n+old\r\n".to_owned())
        }
        _ => None,
    })
    .await;
    let new = serve(|word| match word {
        "ROLE" => Some("*1\r\n$6\r\nmaster\r\n".to_owned()),
        "PING" | "SLOW" => Some("+new\r\n".to_owned()),
        _ => None,
    })
    .await;
    let (address, named) = sentinel(old, 1).await;
    let dial = dial(vec![address]);
    let (link, other) = (Link::new(dial.clone()), Link::new(dial));
    let first = link.ask(&redis::cmd("PING")).await.map_err(|failure| failure.error).unwrap();
    let slow = redis::cmd("SLOW");
    let mut waits = Box::pin(link.ask(&slow));
    assert!(futures_util::poll!(&mut waits).is_pending());
    asked.notified().await;
    *named.lock().unwrap() = Some((new, 2, "master"));
    assert_eq!(answers(&other).await, "new");
    *deposed.lock().unwrap() = true;
    let late = link.ask_on(&first.connection, &slow).await;
    assert!(late.is_err_and(|failure| failure.in_doubt), "it counts no more");
    let answer = waits.await.map_err(|failure| failure.error).unwrap();
    assert!(answer.resent && text(&answer.value) == Some("new"));
}
