//! Ending a client's session.

use std::{io, net::SocketAddr};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Ends a session as its own client would: by taking it over on another connection and closing it there.
pub(crate) async fn end_session(server: SocketAddr, session: i64) {
    let mut connect = Vec::new();
    connect.extend(0_i32.to_be_bytes());
    connect.extend(0_i64.to_be_bytes());
    connect.extend(10_000_i32.to_be_bytes());
    connect.extend(session.to_be_bytes());
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password(session));
    connect.push(0);
    let close = [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat();
    // Its client is told of the first request, and may take the session back at any moment; then this connection is closed.
    loop {
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(&[packet(&connect), packet(&close)].concat()).await.unwrap();
        let Ok(answer) = receive(&mut stream).await else { continue };
        if answer[8..16] == 0_i64.to_be_bytes() {
            return;
        }
        assert_eq!(answer[8..16], session.to_be_bytes());
        // Whether it is answered or not, the next round tells what came of it.
        let _ = receive(&mut stream).await;
    }
}

/// A message with its length before it, as both sides send it.
pub(crate) fn packet(request: &[u8]) -> Vec<u8> {
    let length = i32::try_from(request.len()).unwrap();
    [&length.to_be_bytes(), request].concat()
}

pub(crate) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = stream.read_i32().await?;
    let mut answer = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// The server makes a session's password from its id and a constant, by `java.util.Random`
/// ([`ZooKeeperServer.generatePasswd`](https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-server/src/main/java/org/apache/zookeeper/server/ZooKeeperServer.java)).
fn password(session: i64) -> [u8; 16] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((session ^ 0xB341_5C00).cast_unsigned() ^ MULTIPLIER) & MASK;
    let mut bytes = [0; 16];
    for word in bytes.chunks_mut(4) {
        seed = (seed.wrapping_mul(MULTIPLIER) + 0xB) & MASK;
        let next = u32::try_from(seed >> 16).unwrap();
        word.copy_from_slice(&next.to_le_bytes());
    }
    bytes
}
