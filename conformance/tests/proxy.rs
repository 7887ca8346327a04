//! The proxy, in front of a server that sends back what it is sent.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tenure_conformance::proxy::{Flow, Proxy};
use tenure_conformance::saboteur::{Direction, Hurt, Saboteur};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Every expected byte has come by then.
const LONG: Duration = Duration::from_secs(20);
/// A byte that has not come by then does not come.
const SHORT: Duration = Duration::from_millis(200);

/// A server that speaks first, if it greets, and puts this mark before its echo.
async fn echo(greeting: &'static str, mark: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                stream.write_all(greeting.as_bytes()).await.unwrap();
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    stream.write_all(&[mark.as_bytes(), &buffer[..read]].concat()).await.unwrap();
                }
            });
        }
    });
    address
}

async fn proxy() -> Proxy {
    Proxy::start(echo("", "a").await).await.unwrap()
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn reply(stream: &mut TcpStream) -> io::Result<String> {
    let mut buffer = [0; 64];
    let read = timeout(LONG, stream.read(&mut buffer)).await.expect("an answer or an end")?;
    Ok(String::from_utf8_lossy(&buffer[..read]).into_owned())
}

async fn ask(stream: &mut TcpStream, word: &str) -> io::Result<String> {
    stream.write_all(word.as_bytes()).await?;
    reply(stream).await
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(SHORT, stream.read(&mut [0; 64])).await.is_err()
}

fn is_reset(result: &io::Result<String>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn proxy_passes_and_counts_bytes() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, "one").await.unwrap(), "aone");
    assert_eq!(ask(&mut stream, "two").await.unwrap(), "atwo");
    let counters = proxy.until(|c| c.replies.passed == 8).await;
    assert_eq!((counters.accepted, counters.open), (1, 1));
    assert_eq!((counters.requests.arrived, counters.requests.passed), (6, 6));
    assert_eq!(proxy.connections()[0].opening(), b"aoneatwo");
    assert_eq!(proxy.connections()[0].client(), stream.local_addr().unwrap());
    drop(stream);
    assert_eq!(timeout(LONG, proxy.until(|c| c.open == 0)).await.unwrap().accepted, 1);
}

/// To the server a client has stopped for good at the word, and only there.
#[tokio::test]
async fn connection_stops_at_word() {
    let proxy = proxy().await;
    let (mut stopped, mut other) = (connect(&proxy).await, connect(&proxy).await);
    proxy.set(Direction::Requests, Flow::StopAt(&["COMMIT", "END"]));
    assert_eq!(ask(&mut stopped, "READ COMMITTED").await.unwrap(), "aREAD COMMITTED");
    stopped.write_all(b"COMMIT;").await.unwrap();
    timeout(LONG, proxy.until(|c| c.requests.dropped == 7)).await.unwrap();
    stopped.write_all(b"more").await.unwrap();
    timeout(LONG, proxy.until(|c| c.requests.dropped == 11)).await.unwrap();
    assert!(is_silent(&mut stopped).await);
    assert_eq!(ask(&mut other, "other").await.unwrap(), "aother");
    // A closing that the server heard of would end the connection here.
    drop(stopped);
    assert_eq!(timeout(SHORT, proxy.until(|c| c.open < 2)).await.ok(), None);
    proxy.mend().await.unwrap();
    timeout(LONG, proxy.until(|c| c.open == 1)).await.unwrap();
    assert_eq!(ask(&mut other, "END").await.unwrap(), "aEND");
}

#[tokio::test]
async fn much_data_passes_and_closes_in_order() {
    let proxy = proxy().await;
    let (mut reader, mut writer) = connect(&proxy).await.into_split();
    let sent = 3_000_000;
    let writing = tokio::spawn(async move {
        writer.write_all(&vec![b'x'; sent]).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    // Ends only when the proxy hands on that the server closed, after the client did.
    timeout(LONG, reader.read_to_end(&mut received)).await.unwrap().unwrap();
    writing.await.unwrap();
    received.retain(|byte| *byte == b'x');
    assert_eq!(received.len(), sent);
}

#[tokio::test]
async fn cut_resets_open_connections_and_serves_new_ones() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    ask(&mut stream, "hello").await.unwrap();
    proxy.cut().await;
    assert_eq!(proxy.counters().open, 0);
    assert!(is_reset(&reply(&mut stream).await));
    assert_eq!(ask(&mut connect(&proxy).await, "again").await.unwrap(), "aagain");
}

#[tokio::test]
async fn one_connection_is_hurt_alone() {
    let proxy = proxy().await;
    let (mut first, mut second, mut third) =
        (connect(&proxy).await, connect(&proxy).await, connect(&proxy).await);
    for stream in [&mut first, &mut second, &mut third] {
        ask(stream, "hello").await.unwrap();
    }
    let of = |stream: &TcpStream| {
        let address = stream.local_addr().unwrap();
        proxy.connections().into_iter().find(|c| c.client() == address).unwrap()
    };
    of(&first).cut();
    of(&second).set(Direction::Replies, Flow::Hold);
    assert!(is_reset(&reply(&mut first).await));
    second.write_all(b"held").await.unwrap();
    assert!(is_silent(&mut second).await);
    assert_eq!(ask(&mut third, "free").await.unwrap(), "afree");
    of(&second).set(Direction::Replies, Flow::Pass);
    assert_eq!(reply(&mut second).await.unwrap(), "aheld");
}

#[tokio::test]
async fn refuse_leaves_open_connections_and_port() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    ask(&mut stream, "hello").await.unwrap();
    for _ in 0..3 {
        proxy.refuse().await;
        let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(TcpListener::bind(proxy.address()).await.is_err(), "the port is still ours");
        assert_eq!(ask(&mut stream, "still").await.unwrap(), "astill");
        proxy.accept().await.unwrap();
        assert_eq!(ask(&mut connect(&proxy).await, "back").await.unwrap(), "aback");
    }
}

#[tokio::test]
async fn half_open_accepts_and_is_silent_until_mended() {
    let proxy = proxy().await;
    let mut old = connect(&proxy).await;
    ask(&mut old, "hello").await.unwrap();
    proxy.half_open();
    let mut new = connect(&proxy).await;
    old.write_all(b"old").await.unwrap();
    new.write_all(b"new").await.unwrap();
    assert!(is_silent(&mut old).await && is_silent(&mut new).await);
    proxy.mend().await.unwrap();
    assert_eq!(reply(&mut old).await.unwrap(), "aold");
    assert_eq!(reply(&mut new).await.unwrap(), "anew");
}

#[tokio::test]
async fn half_open_hides_end_of_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
    let mut stream = connect(&proxy).await;
    let (server, _) = listener.accept().await.unwrap();
    proxy.half_open();
    server.set_zero_linger().unwrap();
    drop((server, listener));
    assert!(is_silent(&mut stream).await);
    assert!(is_silent(&mut connect(&proxy).await).await);
    proxy.mend().await.unwrap();
    assert!(is_reset(&reply(&mut stream).await));
}

#[tokio::test]
async fn dropped_replies_belong_to_served_requests() {
    let proxy = proxy().await;
    let mut torn = connect(&proxy).await;
    let mut whole = connect(&proxy).await;
    ask(&mut torn, "hello").await.unwrap();
    ask(&mut whole, "hello").await.unwrap();
    proxy.set(Direction::Replies, Flow::Drop);
    torn.write_all(b"lost").await.unwrap();
    // The server has answered, so it was asked.
    assert_eq!(timeout(LONG, proxy.until(|c| c.replies.dropped == 5)).await.unwrap().requests.passed, 14);
    assert!(is_silent(&mut torn).await);
    proxy.mend().await.unwrap();
    assert!(is_reset(&reply(&mut torn).await));
    assert_eq!(ask(&mut whole, "kept").await.unwrap(), "akept");
}

#[tokio::test]
async fn delay_moves_all_bytes_equally() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    let by = Duration::from_secs(3);
    proxy.delay(Direction::Replies, by);
    let start = Instant::now();
    stream.write_all(b"1").await.unwrap();
    proxy.until(|c| c.replies.arrived == 2).await;
    stream.write_all(b"2").await.unwrap();
    proxy.until(|c| c.replies.arrived == 4).await;
    let both_arrived = start.elapsed();
    let mut received = [0; 4];
    timeout(LONG, stream.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(&received, b"a1a2");
    assert!(start.elapsed() >= by, "{:?}", start.elapsed());
    assert!(both_arrived < by, "the second did not wait for the first to be handed on: {both_arrived:?}");
    proxy.mend().await.unwrap();
    assert_eq!(ask(&mut stream, "now").await.unwrap(), "anow");
}

#[tokio::test]
async fn drip_hands_bytes_on_one_at_a_time_until_it_ends() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    proxy.set(Direction::Replies, Flow::Drip(Duration::from_millis(1)));
    stream.write_all(b"slow").await.unwrap();
    let mut received = [0; 5];
    timeout(LONG, stream.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(&received, b"aslow");
    proxy.drip(Duration::from_hours(1));
    stream.write_all(b"stuck").await.unwrap();
    let counters =
        timeout(LONG, proxy.until(|c| c.requests.passed == 5 && c.replies.passed == 6)).await.unwrap();
    // The first byte has passed, was answered, and the answer's first byte has passed.
    assert_eq!((counters.requests.arrived, counters.replies.arrived), (9, 7));
    proxy.mend().await.unwrap();
    let mut received = [0; 7];
    timeout(LONG, stream.read_exact(&mut received)).await.unwrap().unwrap();
    assert!(received.starts_with(b"as") && received.ends_with(b"k"), "{received:?}");
}

#[tokio::test]
async fn connection_that_lost_bytes_passes_none_until_it_is_mended() {
    for lost in [Flow::Drop, Flow::StopAt(&["lost"])] {
        for later in [Flow::Drip(Duration::from_millis(1)), Flow::Delay(Duration::from_millis(1)), Flow::Pass]
        {
            let proxy = proxy().await;
            let mut stream = connect(&proxy).await;
            assert_eq!(ask(&mut stream, "before").await.unwrap(), "abefore");
            proxy.set(Direction::Requests, lost);
            stream.write_all(b"lost").await.unwrap();
            timeout(LONG, proxy.until(|c| c.requests.dropped == 4)).await.unwrap();
            proxy.set(Direction::Requests, later);
            stream.write_all(b"later").await.unwrap();
            let counters = timeout(LONG, proxy.until(|c| c.requests.dropped == 9)).await.unwrap();
            assert_eq!(counters.requests.passed, 6, "{lost:?}, then {later:?}");
            proxy.mend().await.unwrap();
            assert!(is_reset(&reply(&mut stream).await), "{lost:?}, then {later:?}");
        }
    }
}

#[tokio::test]
async fn mending_delivers_delayed_bytes() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    proxy.delay(Direction::Requests, Duration::from_hours(1));
    stream.write_all(b"slow").await.unwrap();
    proxy.until(|c| c.requests.arrived == 4).await;
    proxy.mend().await.unwrap();
    assert_eq!(reply(&mut stream).await.unwrap(), "aslow");
}

/// A client connects again at once after a reset: its new connection must not meet the sabotage that just ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mending_spoils_no_new_connection() {
    const MANY: u64 = 100;
    let proxy = Proxy::start(echo("hello", "").await).await.unwrap();
    let address = proxy.address();
    for round in 1..=8 {
        let mut open = Vec::new();
        for _ in 0..MANY {
            let mut stream = connect(&proxy).await;
            assert_eq!(reply(&mut stream).await.unwrap(), "hello");
            open.push(stream);
        }
        proxy.set(Direction::Replies, Flow::Drop);
        let mut clients = tokio::task::JoinSet::new();
        for mut stream in open {
            clients.spawn(async move {
                assert!(is_reset(&ask(&mut stream, "x").await));
                reply(&mut TcpStream::connect(address).await.unwrap()).await
            });
        }
        proxy.until(|c| c.replies.dropped == MANY * round).await;
        proxy.mend().await.unwrap();
        while let Some(greeted) = clients.join_next().await {
            assert_eq!(greeted.unwrap().unwrap(), "hello");
        }
    }
}

#[tokio::test]
async fn proxy_follows_changed_upstream() {
    let proxy = proxy().await;
    let mut old = connect(&proxy).await;
    assert_eq!(ask(&mut old, "x").await.unwrap(), "ax");
    proxy.set_upstream(echo("", "b").await);
    assert_eq!(ask(&mut connect(&proxy).await, "x").await.unwrap(), "bx");
    assert_eq!(ask(&mut old, "x").await.unwrap(), "ax");
}

#[tokio::test]
async fn connection_without_server_is_reset() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::start(gone).await.unwrap();
    assert!(is_reset(&reply(&mut connect(&proxy).await).await));
}

#[tokio::test]
async fn dropped_proxy_closes_all_connections() {
    let proxy = proxy().await;
    let address = proxy.address();
    let mut stream = connect(&proxy).await;
    ask(&mut stream, "hello").await.unwrap();
    drop(proxy);
    assert!(is_reset(&reply(&mut stream).await));
    // Only the order of two tasks' ends is open.
    timeout(LONG, async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn proxy_is_a_saboteur() {
    let proxy = proxy().await;
    let saboteur: &dyn Saboteur = &proxy;
    assert!(Hurt::NETWORK.into_iter().all(|hurt| saboteur.can(hurt)));
    assert!(!saboteur.can(Hurt::Freeze) && saboteur.hurt(Hurt::Freeze).await.is_err());
    let mut stream = connect(&proxy).await;
    saboteur.hurt(Hurt::HalfOpen).await.unwrap();
    stream.write_all(b"one").await.unwrap();
    assert!(is_silent(&mut stream).await);
    saboteur.mend().await.unwrap();
    assert_eq!(reply(&mut stream).await.unwrap(), "aone");
    saboteur.hurt(Hurt::DropReplies).await.unwrap();
    stream.write_all(b"two").await.unwrap();
    assert!(is_silent(&mut stream).await);
    saboteur.heal().await.unwrap();
    assert!(is_reset(&reply(&mut stream).await));
}
