//! As much of NATS' protocol as it takes to see that JetStream serves.

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// One connection to a server.
pub(crate) struct JetStream {
    stream: BufReader<TcpStream>,
    /// Where answers arrive. No other connection has this one's port.
    inbox: String,
    /// The server's first line, which has its version.
    info: String,
}

impl JetStream {
    /// Connects to a server that answers its clients. JetStream may not answer yet.
    pub(crate) async fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        let inbox = format!("_INBOX.{}", stream.local_addr()?.port());
        let mut connection = Self { stream: BufReader::new(stream), inbox, info: String::new() };
        connection.info = connection.line().await?;
        // Has the server refuse a request without a responder.
        let options = r#"CONNECT {"verbose":false,"headers":true,"no_responders":true}"#;
        connection.write(&format!("{options}\r\nSUB {} 1\r\nPING\r\n", connection.inbox)).await?;
        match &connection.line().await?[..] {
            "PONG" => Ok(connection),
            line => Err(io::Error::other(line.to_owned())),
        }
    }

    /// Asks JetStream, and returns its answer, which is an object of JSON. In a cluster the leader answers.
    pub(crate) async fn ask(&mut self, question: &str, body: &str) -> io::Result<String> {
        let length = body.len();
        self.write(&format!("PUB $JS.API.{question} {} {length}\r\n{body}\r\n", self.inbox)).await?;
        loop {
            let line = self.line().await?;
            let mut words = line.split(' ');
            match words.next() {
                Some("MSG" | "HMSG") => {
                    let length = words.next_back().and_then(|length| length.parse().ok());
                    let mut message = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
                    self.stream.read_exact(&mut message).await?;
                    self.line().await?;
                    return accepted(&String::from_utf8_lossy(&message)).map(str::to_owned);
                }
                Some("PING") => self.write("PONG\r\n").await?,
                Some("-ERR") => return Err(io::Error::other(line)),
                _ => {}
            }
        }
    }

    /// Makes a bucket with this name before any client can. Servers before 2.9.15 crash if a client reads a stream that
    /// another creates.
    pub(crate) async fn make_bucket_if_old(&mut self, name: &str) -> io::Result<()> {
        if (2, 9, 15) <= version(&self.info) {
            return Ok(());
        }
        let config = format!(
            r#"{{"name":"KV_{name}","subjects":["$KV.{name}.>"],"max_msgs_per_subject":1,"discard":"new","allow_rollup_hdrs":true}}"#
        );
        match self.ask(&format!("STREAM.CREATE.KV_{name}"), &config).await {
            Err(error) if !error.to_string().contains("already in use") => Err(error),
            _ => Ok(()),
        }
    }

    /// Succeeds if the leader of this stream answers. Only the leader reads a message. `STREAM.INFO` is also answered by a
    /// member that expects to lead.
    pub(crate) async fn reaches_leader_of(&mut self, stream: &str) -> io::Result<()> {
        match self.ask(&format!("STREAM.MSG.GET.{stream}"), r#"{"seq":1}"#).await {
            Err(error) if !error.to_string().contains("no message found") => Err(error),
            _ => Ok(()),
        }
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

/// The version in a server's first line; 0.0.0 if there is none.
fn version(info: &str) -> (u32, u32, u32) {
    let text = info.split(r#""version":""#).nth(1).unwrap_or_default();
    let mut numbers =
        text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or_default());
    let mut next = || numbers.next().unwrap_or_default();
    (next(), next(), next())
}

/// The answer, if it says that the request succeeded. A request without a responder is answered by a header.
fn accepted(answer: &str) -> io::Result<&str> {
    if answer.starts_with('{') && !answer.contains(r#""error":"#) {
        Ok(answer)
    } else {
        Err(io::Error::other(answer.trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_first_line() {
        assert_eq!(version(r#"INFO {"server_id":"A","version":"2.9.10","proto":1}"#), (2, 9, 10));
        assert!((2, 9, 15) <= version(r#"INFO {"version":"2.10.27-beta.1"}"#));
        assert_eq!(version("INFO {}"), (0, 0, 0));
    }

    #[test]
    fn answer_is_read_unless_it_is_an_error_or_only_a_header() {
        assert_eq!(accepted(r#"{"streams":0}"#).unwrap(), r#"{"streams":0}"#);
        for refused in [r#"{"error":{"code":404}}"#, "NATS/1.0 503\r\n\r\n"] {
            assert_eq!(accepted(refused).unwrap_err().to_string(), refused.trim());
        }
    }
}
