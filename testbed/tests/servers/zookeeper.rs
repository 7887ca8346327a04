//! As much of a ZooKeeper client as the cases need.

use crate::client::{Client, any};
use async_trait::async_trait;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What proves that a session is one's own: its id, and its password.
pub(crate) type Session = (i64, Vec<u8>);

pub(crate) struct Zookeeper {
    stream: TcpStream,
    pub(crate) session: Session,
}

const CREATE: i32 = 1;
const GET: i32 = 4;
const SET: i32 = 5;
const NODE_EXISTS: i32 = -110;
const PATH: &str = "/tenure";

impl Zookeeper {
    /// Opens a session of a minute, or takes this one up again.
    pub(crate) async fn connect(url: &str, session: Option<&Session>) -> io::Result<Self> {
        any(url.trim_start_matches("zookeeper://"), async |address| Self::connect_to(address, session).await)
            .await
    }

    async fn connect_to(address: &str, session: Option<&Session>) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let fresh = (0, vec![0; 16]);
        let (id, password) = session.unwrap_or(&fresh);
        let mut client = Self { stream, session: fresh.clone() };
        let timeout = 60_000_i32.to_be_bytes();
        client.send(&[&[0; 12][..], &timeout, &id.to_be_bytes(), &text(password), &[0]]).await?;
        let answer = client.receive().await?;
        client.session = (i64::from_be_bytes(answer[8..16].try_into().unwrap()), answer[20..36].to_vec());
        if client.session.0 == 0 {
            return Err(io::Error::other("session expired"));
        }
        // A node without data that everybody may do everything with.
        let anybody =
            [&1_i32.to_be_bytes()[..], &31_i32.to_be_bytes(), &text(b"world"), &text(b"anyone")].concat();
        let create = [&text(PATH.as_bytes()), &text(b"")[..], &anybody, &0_i32.to_be_bytes()].concat();
        match client.ask(CREATE, &create).await? {
            (0 | NODE_EXISTS, _) => Ok(client),
            (code, _) => Err(refused(code)),
        }
    }

    /// The reply's code, and what follows it.
    async fn ask(&mut self, kind: i32, body: &[u8]) -> io::Result<(i32, Vec<u8>)> {
        self.send(&[&1_i32.to_be_bytes(), &kind.to_be_bytes(), body]).await?;
        let reply = self.receive().await?;
        // The request's number, and the last change, come first.
        let code = i32::from_be_bytes(reply[12..16].try_into().unwrap());
        Ok((code, reply[16..].to_vec()))
    }

    async fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let body = parts.concat();
        self.stream.write_all(&[&u32::try_from(body.len()).unwrap().to_be_bytes(), &body[..]].concat()).await
    }

    async fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut message = vec![0; self.stream.read_u32().await? as usize];
        self.stream.read_exact(&mut message).await?;
        Ok(message)
    }
}

#[async_trait]
impl Client for Zookeeper {
    async fn put(&mut self, value: &str) -> io::Result<()> {
        let any_version = (-1_i32).to_be_bytes();
        let body = [&text(PATH.as_bytes()), &text(value.as_bytes())[..], &any_version].concat();
        match self.ask(SET, &body).await? {
            (0, _) => Ok(()),
            (code, _) => Err(refused(code)),
        }
    }

    async fn get(&mut self) -> io::Result<Option<String>> {
        match self.ask(GET, &[&text(PATH.as_bytes())[..], &[0]].concat()).await? {
            (0, data) => {
                let length = i32::from_be_bytes(data[..4].try_into().unwrap());
                let end = 4 + usize::try_from(length).unwrap_or(0);
                Ok(Some(String::from_utf8_lossy(&data[4..end]).into_owned())
                    .filter(|value| !value.is_empty()))
            }
            (code, _) => Err(refused(code)),
        }
    }
}

/// Bytes, with their length before them.
fn text(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn refused(code: i32) -> io::Error {
    io::Error::other(format!("ZooKeeper's error {code}"))
}

/// What a server says it is: `leader`, `follower`, or nothing while it serves nobody.
pub(crate) async fn mode(address: std::net::SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(b"srvr").await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned))
}
