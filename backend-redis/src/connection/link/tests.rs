//! Failed connections: their replacement and their errors.

use super::*;
use crate::connection::dial::Endpoint;
use futures_util::FutureExt;
use redis::Client;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::{sleep, timeout},
};

const LONG: Duration = Duration::from_secs(10);
const PONG: &str = "+PONG\r\n";

/// A server's answer to each `PING` on a connection, before it closes the connection.
type Pongs = &'static [&'static str];

/// The link to a server that serves these connections, one after another, and closes every further one at once. Each
/// `PING` that the server gets notifies the test.
async fn link(connections: &'static [Pongs], response_timeout: Duration) -> (Link, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::open(format!("redis://{}", listener.local_addr().unwrap())).unwrap();
    let asked = Arc::new(Notify::new());
    let hears = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut connections = connections.iter().copied();
        while let Ok((client, _)) = listener.accept().await {
            if let Some(pongs) = connections.next() {
                serve(client, pongs, &hears).await;
            }
        }
    });
    (Link::new(Dial::new(Endpoint::Server(Arc::new(client)), LONG, response_timeout)), asked)
}

async fn serve(client: TcpStream, pongs: Pongs, hears: &Notify) {
    let (read, mut write) = client.into_split();
    let mut lines = BufReader::new(read).lines();
    for &pong in pongs {
        while let Ok(Some(line)) = lines.next_line().await {
            let answer = match &*line {
                "HELLO" => "%1\r\n+proto\r\n:3\r\n",
                "SETINFO" => "+OK\r\n",
                "PING" => pong,
                _ => continue,
            };
            write.write_all(answer.as_bytes()).await.unwrap();
            if line == "PING" {
                hears.notify_one();
                break;
            }
        }
    }
}

fn ping() -> Cmd {
    redis::cmd("PING")
}

async fn refused(link: &Link) -> String {
    link.ask(&ping()).await.map(drop).unwrap_err().error.to_string()
}

#[tokio::test]
async fn abandoned_attempt_to_connect_fails_no_later_request() {
    // The client connects once more to learn why the server hung up.
    let (link, _) = link(&[&[], &[], &[PONG]], LONG).await;
    assert!(link.ask(&ping()).now_or_never().is_none());
    let here = link.here();
    let attempt = match &locked(&here).state {
        ConnectionState::Connecting(attempt) => attempt.clone(),
        _ => panic!("it is connecting"),
    };
    assert!(attempt.await.is_err());
    link.ask(&ping()).await.map(drop).map_err(|refusal| refusal.error).expect("it connects again");
}

#[tokio::test]
async fn hang_up_suggests_tls_only_before_any_answer() {
    const RESTARTS: &str = "it is shutting down or restarting";
    let cases: [(&[Pongs], bool, &str); 3] = [
        (&[], false, "it requires TLS"),
        // It speaks the client's protocol, even if it closes the connection next.
        (&[&[""]], false, RESTARTS),
        (&[&[PONG]], true, RESTARTS),
    ];
    for (connections, has_answered, reason) in cases {
        let (link, _) = link(connections, LONG).await;
        assert!(!has_answered || link.ask(&ping()).await.is_ok());
        let said = refused(&link).await;
        assert!(said.contains(&format!("possible reasons: {reason}")), "{said}");
    }
}

/// Sends a request, and gives it up once the server has it.
async fn given_up(link: &Link, asked: &Notify) {
    let ping = ping();
    tokio::select! {
        answer = link.ask(&ping) => panic!("{:?}", answer.map(|answer| answer.value)),
        () = asked.notified() => {}
    }
}

/// Waits until the connection has been tested, and returns whether it is still there.
async fn is_kept(link: &Link) -> bool {
    let here = link.here();
    let tested = async {
        while locked(&here).in_doubt != 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, tested).await.expect("the connection is tested");
    matches!(locked(&here).state, ConnectionState::Connected(..))
}

#[tokio::test]
async fn silent_connection_is_replaced_after_an_abandoned_request() {
    let (link, asked) = link(&[&["", "", ""], &[PONG, PONG]], Duration::from_secs(2)).await;
    given_up(&link, &asked).await;
    assert!(!is_kept(&link).await);
    assert!(link.ask(&ping()).await.is_ok());
}

#[tokio::test]
async fn good_connection_is_kept_after_an_abandoned_request() {
    let (link, asked) = link(&[&["", "+PONG\r\n+PONG\r\n", PONG, PONG]], LONG).await;
    given_up(&link, &asked).await;
    assert!(is_kept(&link).await);
    assert!(link.ask(&ping()).await.is_ok());
}

/// The clock jumps; the connections are real.
async fn silence() {
    tokio::time::pause();
    tokio::time::advance(SILENCE).await;
    tokio::time::resume();
}

#[tokio::test]
async fn idle_connection_is_replaced_if_firewall_dropped_it() {
    // Over the first connection, the server never answers the `PING` of the check.
    let (link, _) = link(&[&[PONG, "", ""], &[PONG]], Duration::from_secs(5)).await;
    assert!(link.ask(&ping()).await.is_ok());
    silence().await;
    assert!(link.ask(&ping()).await.is_ok());
}

#[tokio::test]
async fn idle_connection_is_kept_if_server_answers() {
    let (link, asked) = link(&[&[PONG, PONG, PONG]], Duration::from_mins(1)).await;
    assert!(link.ask(&ping()).await.is_ok());
    asked.notified().await;
    silence().await;
    // The check is answered first, and then the request, over the only connection.
    assert!(link.ask(&ping()).await.is_ok());
}

/// A link to a server that says this to each client at once, and closes the connection.
async fn link_to_a_server_that_says(words: &'static str) -> Link {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::open(format!("redis://:secret@{}", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(words.as_bytes()).await;
        }
    });
    Link::new(Dial::new(Endpoint::Server(Arc::new(client)), LONG, LONG))
}

#[tokio::test]
async fn error_shows_the_last_words_of_a_server() {
    for (words, meaning, may_pass) in [
        ("-DENIED Redis is running in protected mode", "refuses clients from other machines", false),
        ("-ERR max number of clients reached", "limit of clients", true),
        ("-LOADING Redis is loading the dataset in memory", "is not ready", true),
        ("-NOAUTH Authentication required.", "requires a password", false),
        ("-ERR a proxy has a reason of its own", "", false),
    ] {
        let link = link_to_a_server_that_says(Box::leak(format!("{words}\r\n").into_boxed_str())).await;
        let error = link.ask(&ping()).await.map(drop).unwrap_err().error;
        let cause = error.cause();
        let said = format!("{error}: {}", std::error::Error::source(cause).unwrap());
        let (_, detail) = words.split_once(' ').unwrap();
        assert!(said.contains(detail) && said.contains(meaning), "{words}: {said}");
        assert!(!said.contains("TLS"), "{words}: {said}");
        assert_eq!(error.is_unavailable(), may_pass, "{words}: {said}");
        let error = link.dial().subscriptions(false).await.map(drop).unwrap_err();
        assert!(error.to_string().contains(detail), "{words}: {error}");
    }
}
