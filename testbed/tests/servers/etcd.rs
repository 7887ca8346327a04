//! As much of an etcd client as the cases need: requests to its HTTP gateway.

use crate::client::{Client, PATIENCE, any};
use async_trait::async_trait;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) struct Etcd(BufReader<TcpStream>);

/// In base 64, as keys and values are sent.
const KEY: &str = "dGVudXJl";

impl Etcd {
    pub(crate) async fn connect(url: &str) -> io::Result<Self> {
        any(url.trim_start_matches("etcd://"), async |address| {
            let mut client = Self(BufReader::new(TcpStream::connect(address).await?));
            // Of several, one that has a leader and others with it.
            client.get().await.map(|_| client)
        })
        .await
    }

    /// Grants a lease of a minute, with which a key lives and dies, and returns its id.
    pub(crate) async fn grant(&mut self) -> io::Result<String> {
        let lease = self.ask("/v3/lease/grant", r#"{"TTL":60}"#).await?;
        let lease = text(&lease, "ID").ok_or_else(|| io::Error::other(lease.clone()))?.to_owned();
        let put = format!(r#"{{"key":"{KEY}","value":"{}","lease":"{lease}"}}"#, encoded("leased"));
        self.ask("/v3/kv/put", &put).await.map(|_| lease)
    }

    /// Whether a lease could be renewed.
    pub(crate) async fn renew(&mut self, lease: &str) -> io::Result<bool> {
        let renewed = self.ask("/v3/lease/keepalive", &format!(r#"{{"ID":"{lease}"}}"#)).await?;
        Ok(text(&renewed, "TTL").is_some())
    }

    /// The answer's body.
    async fn ask(&mut self, path: &str, body: &str) -> io::Result<String> {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n");
        self.0.write_all((head + body).as_bytes()).await?;
        let is_accepted = self.line().await?.contains(" 200 ");
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.line().await?.to_lowercase();
            if line.is_empty() {
                break;
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().map_err(io::Error::other)?;
            }
            is_chunked |= line == "transfer-encoding: chunked";
        }
        let mut body = Vec::new();
        if is_chunked {
            loop {
                let length = usize::from_str_radix(&self.line().await?, 16).map_err(io::Error::other)?;
                if length == 0 {
                    break;
                }
                body.extend(self.bytes(length).await?);
                self.line().await?;
            }
            // Trailers, and an empty line.
            while !self.line().await?.is_empty() {}
        } else {
            body = self.bytes(length).await?;
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if is_accepted { Ok(body) } else { Err(io::Error::other(body)) }
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    async fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).await.map(|_| bytes)
    }
}

#[async_trait]
impl Client for Etcd {
    async fn put(&mut self, value: &str) -> io::Result<()> {
        let put = format!(r#"{{"key":"{KEY}","value":"{}"}}"#, encoded(value));
        self.ask("/v3/kv/put", &put).await.map(drop)
    }

    async fn get(&mut self) -> io::Result<Option<String>> {
        let found = self.ask("/v3/kv/range", &format!(r#"{{"key":"{KEY}"}}"#)).await?;
        Ok(text(&found, "value").map(decoded))
    }
}

/// Four hexadecimal digits for each byte: they are the base 64 of some bytes.
fn encoded(value: &str) -> String {
    value.bytes().map(|byte| format!("{byte:04x}")).collect::<Vec<_>>().concat()
}

fn decoded(value: &str) -> String {
    let byte = |at| value.get(at..at + 4).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes = (0..value.len()).step_by(4).map(|at| byte(at).unwrap_or(b'?'));
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

/// The first text with this name in a JSON object.
fn text<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    json.split_once(&format!("\"{name}\":\""))?.1.split('"').next()
}

/// The member's own view of its role: `leader`, `follower`, or nothing while it serves no clients.
pub(crate) async fn mode(address: SocketAddr) -> Option<String> {
    let asking = async {
        let mut client = Etcd::connect(&address.to_string()).await.ok()?;
        let status = client.ask("/v3/maintenance/status", "{}").await.ok()?;
        let leads = text(&status, "member_id")? == text(&status, "leader")?;
        Some(if leads { "leader" } else { "follower" }.to_owned())
    };
    timeout(PATIENCE, asking).await.ok()?
}
