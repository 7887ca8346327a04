//! As much of etcd's HTTP interface as it takes to see a server's health, end leases and raise an alarm.
//!
//! It is written by hand because etcd's own protocol, gRPC, would be a dependency of its own, compiled from files of
//! another language.

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server's state, as far as it serves clients.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) member: String,
    /// The member that it follows; itself where it leads.
    pub(crate) leader: String,
}

/// Succeeds if the server can answer clients, which takes a leader and a majority. A server that is only full can.
pub(crate) async fn is_healthy(server: SocketAddr) -> io::Result<()> {
    ask(server, "GET", "/health?exclude=NOSPACE", "").await.map(drop)
}

/// Succeeds if a member answers other members at this port of theirs.
pub(crate) async fn is_running(peers: SocketAddr) -> io::Result<()> {
    ask(peers, "GET", "/version", "").await.map(drop)
}

/// The server's view of its cluster.
pub(crate) async fn status(server: SocketAddr) -> io::Result<Status> {
    let answer = ask(server, "POST", "/v3/maintenance/status", "{}").await?;
    let read = |name| values(&answer, name).next().map(str::to_owned);
    match (read("member_id"), read("leader")) {
        (Some(member), Some(leader)) => Ok(Status { member, leader }),
        _ => Err(io::Error::other(format!("no leader: {answer}"))),
    }
}

/// Revokes every lease, as the server does when one expires.
pub(crate) async fn revoke_leases(server: SocketAddr) -> io::Result<()> {
    let leases = ask(server, "POST", "/v3/lease/leases", "{}").await?;
    for lease in values(&leases, "ID") {
        match ask(server, "POST", "/v3/lease/revoke", &format!(r#"{{"ID":"{lease}"}}"#)).await {
            // It has just expired, or its client or another member has revoked it.
            Err(error) if error.to_string().contains("requested lease not found") => {}
            revoked => revoked.map(drop)?,
        }
    }
    Ok(())
}

/// Raises the alarm of a full database, or takes it back.
pub(crate) async fn set_full(server: SocketAddr, is_full: bool) -> io::Result<()> {
    let action = if is_full { "ACTIVATE" } else { "DEACTIVATE" };
    let alarm = format!(r#"{{"action":"{action}","alarm":"NOSPACE"}}"#);
    ask(server, "POST", "/v3/maintenance/alarm", &alarm).await.map(drop)
}

/// Sends a request on a connection of its own, and returns the answer's body. HTTP/1.0 is never answered in chunks.
async fn ask(server: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    let head =
        format!("{method} {path} HTTP/1.0\r\nHost: {server}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).await?;
    let mut answer = Vec::new();
    // The port for members closes a connection late.
    while !is_whole(&String::from_utf8_lossy(&answer)) && stream.read_buf(&mut answer).await? > 0 {}
    accepted(&String::from_utf8_lossy(&answer)).map(str::to_owned)
}

/// Whether all of an answer is there. A long one that does not tell its length ends with its connection.
fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// The body of an answer, if it says that the request succeeded.
fn accepted(answer: &str) -> io::Result<&str> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    if head.split(' ').nth(1) == Some("200") {
        Ok(body)
    } else {
        Err(io::Error::other(body.trim().to_owned()))
    }
}

/// The texts with this name in a JSON object, at any depth. Numbers of 64 bits are texts, too.
fn values<'a>(json: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let name = format!("\"{name}\":\"");
    let ends: Vec<usize> = json.match_indices(&name).map(|(at, found)| at + found.len()).collect();
    ends.into_iter().filter_map(|at| json[at..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_read_only_from_a_successful_answer() {
        assert_eq!(accepted("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}").unwrap(), "{}");
        let error = accepted("HTTP/1.0 503 Service Unavailable\r\n\r\n{\"health\":\"false\"}\n").unwrap_err();
        assert_eq!(error.to_string(), r#"{"health":"false"}"#);
        for incomplete in ["", "HTTP/1.0 200 OK\r\n"] {
            assert_eq!(accepted(incomplete).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn answer_ends_where_its_length_says() {
        let answer = "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert!(is_whole(answer));
        assert!((0..answer.len()).all(|read| !is_whole(&answer[..read])));
        assert!(!is_whole("HTTP/1.0 200 OK\r\n\r\n{}"), "there may be more");
    }

    #[test]
    fn values_are_found_at_any_depth() {
        let leases = r#"{"header":{"member_id":"1"},"leases":[{"ID":"22"},{"ID":"333"}]}"#;
        assert_eq!(values(leases, "ID").collect::<Vec<_>>(), ["22", "333"]);
        assert_eq!(values(leases, "member_id").collect::<Vec<_>>(), ["1"]);
        assert_eq!(values(r#"{"header":{}}"#, "ID").next(), None);
    }
}
