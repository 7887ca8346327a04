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
}

impl JetStream {
    /// Connects to a server that answers its clients. JetStream may not answer yet.
    pub(crate) async fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        let inbox = format!("_INBOX.{}", stream.local_addr()?.port());
        let mut connection = Self { stream: BufReader::new(stream), inbox };
        connection.line().await?;
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
    fn answer_is_read_unless_it_is_an_error_or_only_a_header() {
        assert_eq!(accepted(r#"{"streams":0}"#).unwrap(), r#"{"streams":0}"#);
        for refused in [r#"{"error":{"code":404}}"#, "NATS/1.0 503\r\n\r\n"] {
            assert_eq!(accepted(refused).unwrap_err().to_string(), refused.trim());
        }
    }
}
