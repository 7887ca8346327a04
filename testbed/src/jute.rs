//! As much of ZooKeeper's protocol as it takes to open a session, take one over, and close it.
//!
//! It is written by hand because `zookeeper-client` takes over only sessions that it opened itself, reports a server that
//! has no room like one that is not there, and knows no four-letter words.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What proves that a session is one's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) id: i64,
    pub(crate) password: Vec<u8>,
}

impl Session {
    /// Reads the server's first words on a connection, with the length before them. `None`: no session was opened.
    pub(crate) fn read(opening: &[u8]) -> Option<Self> {
        // Length, protocol's version, timeout, id, the password's length, password.
        let id = i64::from_be_bytes(opening.get(12..20)?.try_into().ok()?);
        let length = u32::from_be_bytes(opening.get(20..24)?.try_into().ok()?);
        let password = opening.get(24..24 + usize::try_from(length).ok()?)?.to_vec();
        (id != 0).then_some(Self { id, password })
    }
}

/// Opens a session, or takes over this one. `None`: the server closed the connection in place of an answer.
pub(crate) async fn open(
    mut stream: TcpStream,
    timeout: Duration,
    session: Option<&Session>,
) -> io::Result<Option<(TcpStream, Option<Session>)>> {
    let fresh = Session { id: 0, password: vec![0; 16] };
    let Session { id, password } = session.unwrap_or(&fresh);
    let millis = i32::try_from(timeout.as_millis()).map_err(io::Error::other)?;
    let length = i32::try_from(password.len()).map_err(io::Error::other)?;
    let mut request = Vec::new();
    request.extend(0_i32.to_be_bytes()); // the protocol's version
    request.extend(0_i64.to_be_bytes()); // the last change that was seen
    request.extend(millis.to_be_bytes());
    request.extend(id.to_be_bytes());
    request.extend(length.to_be_bytes());
    request.extend(password);
    request.push(0); // not content with a server that only reads
    // A server that has no place for us may have closed already: its answer is the same end of the stream, in whatever
    // words the system has for it (a reset that follows a regular end is a broken pipe, also to a reader).
    let sent = send(&mut stream, &request).await;
    let answered = receive(&mut stream).await;
    match sent.and(answered) {
        Ok(answer) => Ok(Some((stream, Session::read(&answer)))),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Closes a session, which ends it for every client that has it.
pub(crate) async fn close(address: SocketAddr, session: &Session) -> io::Result<()> {
    let connection = TcpStream::connect(address).await?;
    match open(connection, Duration::from_secs(10), Some(session)).await? {
        Some((mut stream, Some(_))) => {
            // A request's number, and its kind: to close.
            let close = [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat();
            send(&mut stream, &close).await?;
            receive(&mut stream).await.map(drop)
        }
        Some((_, None)) => Ok(()), // it had run out already
        None => Err(io::ErrorKind::ConnectionReset.into()),
    }
}

/// Asks a four letter word.
pub(crate) async fn ask(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn send(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), body].concat()).await
}

/// One message, with the length before it.
async fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut message = length.to_be_bytes().to_vec();
    let read = stream.take(length.into()).read_to_end(&mut message).await?;
    if read < usize::try_from(length).map_err(io::Error::other)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(message)
}
