//! The words of a server to a client before it closes the connection.
//!
//! A server that admits no client (protected mode, too many clients) says why, and closes. The `redis` crate takes that for
//! the answer to its first command, does not look at it, and then finds the connection closed. Or the client writes to the
//! closed connection, and the system drops what it has not read yet.

use super::errors::Trouble;
use redis::{Client, ConnectionAddr, RedisError};
use std::{io, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    net::TcpStream,
    time::timeout,
};

/// The most bytes of a line that are read. Redis's longest is about 900.
const LONGEST_LINE: u64 = 4096;

/// Why an attempt to connect failed. If the server hung up, connects once more, and listens for a part of `longest`:
/// a server that admits no client says so at once, and one that works says nothing.
pub(crate) async fn reason(client: &Client, longest: Duration, error: RedisError) -> RedisError {
    if Trouble::of(&error) != Trouble::HungUp {
        return error;
    }
    let address = client.get_connection_info().addr();
    let said = timeout(longest / 4, first_line(address)).await;
    said.ok().and_then(Result::ok).as_deref().and_then(read).unwrap_or(error)
}

async fn first_line(address: &ConnectionAddr) -> io::Result<String> {
    match address {
        ConnectionAddr::Tcp(host, port) => line_of(TcpStream::connect((&**host, *port)).await?).await,
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => line_of(tokio::net::UnixStream::connect(path).await?).await,
        // Over TLS a server says nothing before the client has.
        _ => Ok(String::new()),
    }
}

async fn line_of(stream: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_LINE)).read_line(&mut line).await?;
    Ok(line)
}

/// An error as Redis writes it: `-CODE text`.
fn read(line: &str) -> Option<RedisError> {
    let said = line.strip_prefix('-')?.trim_end();
    let (code, detail) = said.split_once(' ').unwrap_or((said, ""));
    Some(redis::make_extension_error(code.to_owned(), Some(detail.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_redis_errors_count_as_last_words(line in "-?[A-Z]{0,9}[ -]{0,2}.{0,20}[\r\n]{0,2}") {
            let read = read(&line);
            prop_assert_eq!(read.is_some(), line.starts_with('-'));
            let Some(error) = read else { return Ok(()) };
            let said = format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default());
            prop_assert_eq!(said.trim_end(), line[1..].trim_end());
            let _ = Trouble::of(&error);
        }
    }
}
