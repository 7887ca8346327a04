//! As much of a client of S3 as the cases need: one object, over one connection.

use crate::client::Client;
use async_trait::async_trait;
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub(crate) struct S3(BufReader<TcpStream>);

impl S3 {
    pub(crate) async fn connect(url: &str) -> io::Result<Self> {
        let (_, endpoint) = url.split_once("endpoint=http://").expect("an endpoint");
        let address = endpoint.split('&').next().unwrap_or_default();
        Ok(Self(BufReader::new(TcpStream::connect(address).await?)))
    }

    /// The status of the answer, and its body.
    async fn ask(&mut self, method: &str, body: &str) -> io::Result<(String, String)> {
        let length = body.len();
        let head = format!("{method} /tenure/value HTTP/1.1\r\nHost: s3\r\nContent-Length: {length}\r\n\r\n");
        self.0.write_all((head + body).as_bytes()).await?;
        let status = self.line().await?;
        let mut length = 0;
        loop {
            let line = self.line().await?.to_lowercase();
            if line.is_empty() {
                break;
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        Ok((status, String::from_utf8(body).map_err(io::Error::other)?))
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

#[async_trait]
impl Client for S3 {
    async fn put(&mut self, value: &str) -> io::Result<()> {
        let (status, body) = self.ask("PUT", value).await?;
        if status.contains(" 200 ") { Ok(()) } else { Err(io::Error::other(body)) }
    }

    async fn get(&mut self) -> io::Result<Option<String>> {
        let (status, body) = self.ask("GET", "").await?;
        match status {
            found if found.contains(" 200 ") => Ok(Some(body)),
            missing if missing.contains(" 404 ") => Ok(None),
            _ => Err(io::Error::other(body)),
        }
    }
}
