//! As much of Redis' protocol as an administrator needs: a command and its reply in words.

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use url::Url;

/// A connection to a Redis server.
#[derive(Debug)]
pub(crate) struct Redis(BufReader<TcpStream>);

impl Redis {
    /// Connects, and authenticates as the URL says.
    pub(crate) async fn connect(address: SocketAddr, url: &str) -> io::Result<Self> {
        let mut redis = Self(BufReader::new(TcpStream::connect(address).await?));
        let url = Url::parse(url).map_err(io::Error::other)?;
        match (decoded(url.username())?, url.password().map(decoded).transpose()?) {
            (user, Some(password)) if user.is_empty() => redis.ask(&["AUTH", &password]).await?,
            (user, Some(password)) => redis.ask(&["AUTH", &user, &password]).await?,
            _ => String::new(),
        };
        Ok(redis)
    }

    /// Sends a command and returns its reply, an array's elements separated by line feeds.
    pub(crate) async fn ask(&mut self, command: &[&str]) -> io::Result<String> {
        let mut request = format!("*{}\r\n", command.len()).into_bytes();
        for word in command {
            request.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
        self.0.write_all(&request).await?;
        let mut words = Vec::new();
        let mut missing = 1_usize;
        while missing > 0 {
            missing -= 1;
            let line = self.line().await?;
            let (kind, rest) = line.split_at_checked(1).ok_or_else(|| garbled(&line))?;
            match kind {
                "+" | ":" => words.push(rest.to_owned()),
                "-" => return Err(io::Error::other(rest.to_owned())),
                "*" => missing += number(rest)?.unwrap_or(0),
                "$" => words.push(match number(rest)? {
                    Some(length) => self.text(length).await?,
                    None => String::new(),
                }),
                _ => return Err(garbled(&line)),
            }
        }
        Ok(words.join("\n"))
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    async fn text(&mut self, length: usize) -> io::Result<String> {
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes).await?;
        bytes.truncate(length);
        String::from_utf8(bytes).map_err(io::Error::other)
    }
}

/// A length; `None` is the protocol's −1, nothing.
fn number(text: &str) -> io::Result<Option<usize>> {
    if text == "-1" { Ok(None) } else { text.parse().map(Some).map_err(|_| garbled(text)) }
}

fn garbled(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply of Redis: {line}"))
}

/// Percent-decodes a part of a URL.
fn decoded(part: &str) -> io::Result<String> {
    let decoded = percent_encoding::percent_decode_str(part).decode_utf8();
    decoded.map(Into::into).map_err(io::Error::other)
}
