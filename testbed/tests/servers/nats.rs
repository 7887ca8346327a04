//! As much of a NATS client as the cases need: one stream of one message.

use crate::client::{Client, PATIENCE, any};
use async_trait::async_trait;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) struct Nats {
    stream: BufReader<TcpStream>,
    /// The server's name.
    name: String,
    /// How many questions were sent.
    asked: u32,
}

impl Nats {
    pub(crate) async fn connect(url: &str) -> io::Result<Self> {
        let (addresses, rest) = url.trim_start_matches("nats://").split_once('/').expect("a bucket");
        let replicas = rest.split_once("?replicas=").map_or("1", |(_, replicas)| replicas);
        let stream = format!(
            r#"{{"name":"test","subjects":["test"],"max_msgs":1,"discard":"old","num_replicas":{replicas}}}"#
        );
        any(addresses, async |address| {
            let mut client = Self::open(address).await?;
            // Of several, one that reaches the cluster's leader. It changes nothing if the stream exists.
            client.ask("$JS.API.STREAM.CREATE.test", &stream).await.map(|_| client)
        })
        .await
    }

    async fn open(address: &str) -> io::Result<Self> {
        let mut client = Self {
            stream: BufReader::new(TcpStream::connect(address).await?),
            name: String::new(),
            asked: 0,
        };
        let info = client.line().await?;
        assert!(!info.contains("connect_urls"), "clients would connect past the proxies: {info}");
        text(&info, "server_name").ok_or(io::ErrorKind::InvalidData)?.clone_into(&mut client.name);
        let options = r#"CONNECT {"verbose":false,"headers":true,"no_responders":true}"#;
        client.write(&format!("{options}\r\nSUB _INBOX.{}.* 1\r\n", client.port()?)).await?;
        Ok(client)
    }

    /// The answer, which is an object of JSON.
    async fn ask(&mut self, subject: &str, body: &str) -> io::Result<String> {
        self.asked += 1;
        let inbox = format!("_INBOX.{}.{}", self.port()?, self.asked);
        self.write(&format!("PUB {subject} {inbox} {}\r\n{body}\r\n", body.len())).await?;
        loop {
            let line = self.line().await?;
            let mut words = line.split(' ');
            match words.next() {
                Some("MSG" | "HMSG") => {
                    let length = words.next_back().and_then(|length| length.parse().ok());
                    let mut message = vec![0; length.expect("a length")];
                    self.stream.read_exact(&mut message).await?;
                    self.line().await?;
                    if words.next() != Some(&inbox[..]) {
                        continue; // of a question that was given up
                    }
                    let message = String::from_utf8_lossy(&message).into_owned();
                    let is_accepted = message.starts_with('{') && !message.contains(r#""error":"#);
                    return if is_accepted { Ok(message) } else { Err(io::Error::other(message)) };
                }
                Some("PING") => self.write("PONG\r\n").await?,
                Some("-ERR") => return Err(io::Error::other(line)),
                _ => {}
            }
        }
    }

    /// The connection's own. No other open one has it.
    fn port(&self) -> io::Result<u16> {
        Ok(self.stream.get_ref().local_addr()?.port())
    }

    async fn write(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(text.as_bytes()).await
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

#[async_trait]
impl Client for Nats {
    async fn put(&mut self, value: &str) -> io::Result<()> {
        self.ask("test", value).await.map(drop)
    }

    async fn get(&mut self) -> io::Result<Option<String>> {
        match self.ask("$JS.API.STREAM.MSG.GET.test", r#"{"last_by_subj":"test"}"#).await {
            Ok(found) => Ok(text(&found, "data").map(decoded)),
            Err(error) if error.to_string().contains("no message found") => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// From base 64.
fn decoded(data: &str) -> String {
    let sign = |byte| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let signs: Vec<u32> = data.trim_end_matches('=').bytes().map(|byte| sign(byte).into()).collect();
    let bytes = signs.chunks(4).flat_map(|signs| {
        let bits = (0..4).fold(0, |bits, at| bits << 6 | signs.get(at).copied().unwrap_or(0));
        bits.to_be_bytes()[1..signs.len()].to_vec()
    });
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

/// The first text with this name in a JSON object.
fn text<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    json.split_once(&format!("\"{name}\":\""))?.1.split('"').next()
}

/// The member's role for the stream: `leader`, `follower`, or nothing while it reaches no leader.
pub(crate) async fn mode(address: SocketAddr) -> Option<String> {
    let asking = async {
        let mut client = Nats::open(&address.to_string()).await.ok()?;
        let stream = client.ask("$JS.API.STREAM.INFO.test", "").await.ok()?;
        let leads = text(&stream, "leader")? == client.name;
        Some(if leads { "leader" } else { "follower" }.to_owned())
    };
    timeout(PATIENCE, asking).await.ok()?
}
