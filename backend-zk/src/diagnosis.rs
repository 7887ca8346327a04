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

/// What is wrong with one server.
struct Finding {
    what: String,
    /// Whether it stays so until somebody fixes it.
    lasting: bool,
}

impl Finding {
    fn passing(what: impl Into<String>) -> Self {
        Self { what: what.into(), lasting: false }
    }
}

/// What is wrong with the servers; `None` if all answer.
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
    let said = format!("no server opened a session: {}", said.join("; "));
    match &found[..] {
        [] => None,
        all if all.iter().any(|finding| finding.lasting) => Some(StoreError::failed(said)),
        _ => Some(StoreError::unavailable(said)),
    }
}

fn look(host: &Host, options: &Checked) -> Option<Finding> {
    let stream = match connect(host, options.connect_timeout.min(PATIENCE)) {
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
        _ => Some(Finding::passing(
            "closes connections without an answer: it is not ready, or its port is for TLS (zookeeper+tls:)",
        )),
    }
}

fn ask(stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    stream.write_all(QUESTION)?;
    stream.flush()?;
    let mut said = vec![0; 4096];
    let length = stream.read(&mut said)?;
    said.truncate(length);
    Ok(said)
}

/// What an answer in ZooKeeper's own words means.
fn serves(said: &[u8]) -> Option<Finding> {
    let said = String::from_utf8_lossy(said);
    said.contains("not currently serving").then(|| Finding::passing("runs, but has no leader"))
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(feature = "tls")]
mod encrypted {
    use super::{Finding, Host, ask, is_late, serves};
    use crate::tls::CheckedTls;
    use rustls::{ClientConnection, Error, Stream, pki_types::ServerName};
    use std::{io, net::TcpStream, sync::Arc};

    pub(super) fn look(host: &Host, tls: &CheckedTls, mut stream: TcpStream) -> Option<Finding> {
        let name = ServerName::try_from(host.name.clone()).ok()?;
        let mut connection = ClientConnection::new(Arc::clone(&tls.config), name).ok()?;
        match ask(&mut Stream::new(&mut connection, &mut stream)) {
            Ok(said) if !said.is_empty() => serves(&said),
            Ok(_) => Some(Finding::passing("closes encrypted connections without an answer")),
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
            None => Finding::passing(
                "closes connections during the TLS handshake: it is not ready, or its port is for plain connections",
            ),
        }
    }
}
