//! Why no server opened a session: the client does not tell, so each server is asked once, bypassing the client.

use crate::options::{Checked, Host};
use futures_util::future::join_all;
use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};
use tenure_core::StoreError;

/// How long one server may take at most.
const PATIENCE: Duration = Duration::from_secs(2);
/// One of the [four letter words](https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_4lw), plus one byte,
/// because a server that expects TLS waits for five.
const QUESTION: &[u8; 5] = b"srvr\n";

/// The fault of one server.
struct Finding {
    what: String,
    /// Whether it stays so until it is repaired.
    lasting: bool,
}

impl Finding {
    fn passing(what: impl Into<String>) -> Self {
        Self { what: what.into(), lasting: false }
    }
}

/// The faults of the servers; `None` if all answer.
pub(crate) async fn diagnose(options: &Checked) -> Option<StoreError> {
    let looks = options.hosts.iter().map(|host| {
        let (host, options) = (host.clone(), options.clone());
        async move {
            let at = host.to_string();
            let found = tokio::task::spawn_blocking(move || look(&host, &options)).await.ok()??;
            Some(Finding { what: format!("{at} {}", found.what), ..found })
        }
    });
    let found: Vec<_> = join_all(looks).await.into_iter().flatten().collect();
    let said: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
    let said = format!("no server opened a session: {}", said.join(", and "));
    match &found[..] {
        [] => None,
        all if all.iter().any(|finding| finding.lasting) => Some(StoreError::failed(said)),
        _ => Some(StoreError::unavailable(said)),
    }
}

fn look(host: &Host, options: &Checked) -> Option<Finding> {
    let stream = match connect(host, options.values.connect_timeout.min(PATIENCE)) {
        Ok(stream) => stream,
        Err(error) => return Some(Finding::passing(format!("cannot be reached ({error})"))),
    };
    #[cfg(feature = "tls")]
    if let Some(tls) = &options.tls {
        return encrypted::look(host, tls, stream);
    }
    plainly(stream)
}

fn connect(host: &Host, patience: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in (host.name.as_str(), host.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn plainly(mut stream: TcpStream) -> Option<Finding> {
    let said = ask(&mut stream);
    match said.as_deref() {
        Ok(said) if !said.is_empty() => serves(said),
        Err(error) if is_late(error) => Some(Finding::passing("does not answer")),
        _ => Some(closes("connections without an answer", "is for TLS (zookeeper+tls:)")),
    }
}

/// A server that closes connections does not say why. In most cases it is one of these reasons.
fn closes(connections: &str, port: &str) -> Finding {
    Finding::passing(format!(
        "closes {connections} and gives no reason; possible reasons: it is not ready, this address has reached \
         maxClientCnxns, all clients together have reached maxCnxns, or its port {port}"
    ))
}

fn ask(stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    stream.write_all(QUESTION)?;
    stream.flush()?;
    let mut said = vec![0; 4096];
    let length = stream.read(&mut said)?;
    said.truncate(length);
    Ok(said)
}

/// The meaning of an answer. A server that runs says its version, or that the question "is not executed because it is not in
/// the whitelist". So does the Keeper of other projects.
fn serves(said: &[u8]) -> Option<Finding> {
    let said = String::from_utf8_lossy(said);
    if said.contains("not currently serving") {
        return Some(Finding::passing("runs, but has no leader"));
    }
    if said.contains("eeper version: ") || said.contains("is not executed") {
        return None;
    }
    let line: String = said.lines().next().unwrap_or_default().chars().take(100).collect();
    Some(Finding { what: format!("answers {line:?}, so it is not a ZooKeeper server"), lasting: true })
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(feature = "tls")]
mod encrypted {
    use super::{Finding, Host, ask, closes, is_late, serves};
    use crate::options::tls::CheckedTls;
    use rustls::{ClientConnection, Error, Stream, pki_types::ServerName};
    use std::{io, net::TcpStream, sync::Arc};

    pub(super) fn look(host: &Host, tls: &CheckedTls, mut stream: TcpStream) -> Option<Finding> {
        let name = ServerName::try_from(host.name.clone()).ok()?;
        let mut connection = ClientConnection::new(Arc::clone(&tls.config), name).ok()?;
        match ask(&mut Stream::new(&mut connection, &mut stream)) {
            Ok(said) if !said.is_empty() => serves(&said),
            Ok(_) => Some(closes("encrypted connections without an answer", "requires a client certificate")),
            Err(error) => Some(explain(&error)),
        }
    }

    fn explain(error: &io::Error) -> Finding {
        let lasting = |what| Finding { what, lasting: true };
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error @ Error::InvalidCertificate(_)) => {
                lasting(format!("presents a certificate that is not trusted ({error})"))
            }
            Some(error @ Error::AlertReceived(_)) => lasting(format!(
                "refuses the TLS connection ({error}): it may require a client certificate from an authority that it trusts"
            )),
            Some(error) => Finding::passing(format!("does not speak TLS correctly ({error})")),
            None if is_late(error) => Finding::passing("does not answer"),
            None => closes("connections during the TLS handshake", "is for plain connections (zookeeper:)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZkOptions;
    use std::net::{Shutdown, TcpListener};

    /// The diagnosis of a server that gives this answer to the first connection.
    async fn of(answer: &'static str) -> StoreError {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = server.local_addr().unwrap().to_string();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            // A refused connection is closed before its question is read.
            if !answer.is_empty() {
                stream.read_exact(&mut [0; QUESTION.len()]).unwrap();
            }
            stream.write_all(answer.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Both).unwrap();
        });
        let found = diagnose(&ZkOptions::new([host]).check().unwrap()).await;
        serving.join().unwrap();
        found.unwrap_or_else(|| StoreError::unavailable("nothing is wrong"))
    }

    #[tokio::test]
    async fn silent_close_lists_its_possible_reasons() {
        let error = of("").await;
        let said = error.to_string();
        assert!(error.is_unavailable(), "{said}");
        for part in
            ["gives no reason; possible reasons", "not ready", "maxClientCnxns", "maxCnxns", "zookeeper+tls:"]
        {
            assert!(said.contains(part), "{said}");
        }
    }

    #[tokio::test]
    async fn answer_of_another_server_is_shown() {
        let error = of("HTTP/1.1 400 Bad Request\r\nServer: x\r\n").await;
        assert!(!error.is_unavailable(), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("answers \"HTTP/1.1 400 Bad Request\", so it is not a ZooKeeper server"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn answers_of_zookeeper_are_understood() {
        assert!(
            of("This ZooKeeper instance is not currently serving requests\n")
                .await
                .to_string()
                .ends_with("no leader")
        );
        for runs in [
            "Zookeeper version: 3.8.0\n",
            "srvr is not executed because it is not in the whitelist.\n",
            "ClickHouse Keeper version: v24.1\n",
        ] {
            assert_eq!(of(runs).await.to_string(), "nothing is wrong");
        }
    }
}
