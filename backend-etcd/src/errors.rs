//! The meaning of the client's errors.

use etcd_client::Error as Client;
use std::error::Error as _;
use tenure_core::StoreError;
use tonic::Code;

/// How to react to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The lease is gone: so are all keys on it.
    SessionOver,
    /// This member cannot answer now; another may. The request may have been carried out.
    Elsewhere,
    /// No member can answer now, because the cluster has no leader or too much to do. Ask again soon.
    Soon,
    /// The cluster refuses the request.
    Refused,
}

pub(crate) fn verdict(error: &Client) -> Verdict {
    match error {
        Client::LeaseKeepAliveError(_) => Verdict::SessionOver,
        Client::GRpcStatus(status) => match status.code() {
            Code::NotFound if status.message().contains("lease not found") => Verdict::SessionOver,
            Code::Unavailable if status.message().starts_with("etcdserver:") => Verdict::Soon,
            Code::ResourceExhausted if !status.message().contains("space exceeded") => Verdict::Soon,
            // A connection that ends takes requests with it; tonic reports that in several ways.
            Code::Unavailable
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unknown
            | Code::Internal
            | Code::Aborted
            | Code::DataLoss => Verdict::Elsewhere,
            _ => Verdict::Refused,
        },
        Client::TransportError(_) | Client::IoError(_) | Client::WatchError(_) | Client::Internal(_) => {
            Verdict::Elsewhere
        }
        _ => Verdict::Refused,
    }
}

/// Whether the request may have been carried out, or still be.
pub(crate) fn may_be_carried_out(error: &Client) -> bool {
    let Client::GRpcStatus(status) = error else { return false };
    let is_refused = ["no leader", "too many requests"].iter().any(|why| status.message().ends_with(why));
    !is_refused && find_cause(status, |text| text.contains("connect error")).is_none()
}

/// Whether the cluster's users or roles have changed since the client authenticated. etcd-client itself only refreshes
/// expired tokens.
pub(crate) fn is_stale_login(error: &Client) -> bool {
    let Client::GRpcStatus(status) = error else { return false };
    let message = status.message();
    message.contains("revision of auth store is old") || message.contains("revision in header is old")
}

/// Whether one side refused the other's certificate: asking this member again does not help, but another may.
pub(crate) fn is_about_a_certificate(error: &Client) -> bool {
    match error {
        Client::GRpcStatus(status) => refused_certificate(status).is_some(),
        Client::TransportError(error) => refused_certificate(error).is_some(),
        _ => false,
    }
}

/// Why one side refused the other's certificate, if that is the cause.
fn refused_certificate(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    // As in an alert from the other side, too: BadCertificate, CertificateRequired.
    find_cause(error, |text| text.to_ascii_lowercase().contains("certificate"))
}

/// The text of the first cause that is like this.
fn find_cause(error: &(dyn std::error::Error + 'static), is: impl Fn(&str) -> bool) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if is(&text) {
            return Some(text);
        }
        cause = error.source();
    }
    None
}

#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Explained {
    what: String,
    #[source]
    source: Client,
}

/// The error's message, with its deepest cause.
pub(crate) fn said(error: &Client) -> String {
    let status = match error {
        Client::GRpcStatus(status) => status,
        Client::TransportError(error) => return deepest(error),
        other => return other.to_string(),
    };
    // A status that a member sent has no source; of others, the connection's error is the cause.
    match status.source() {
        Some(source) => deepest(source),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let text = deepest.to_string();
    // As when a server of another kind answers.
    let hint =
        if text.contains("invalid size") { " (is this etcd's client port, usually 2379?)" } else { "" };
    text + hint
}

/// The error for a request that the cluster refuses.
pub(crate) fn refused(source: Client) -> StoreError {
    let what = match &source {
        Client::GRpcStatus(status) => match status.code() {
            Code::PermissionDenied => {
                "permission denied on the prefix; grant the user's role readwrite on it".to_owned()
            }
            Code::Unauthenticated => "the cluster rejected the login".to_owned(),
            Code::InvalidArgument if status.message().contains("authentication failed") => {
                "the cluster refused the user or the password".to_owned()
            }
            Code::InvalidArgument if status.message().contains("user name is empty") => {
                "authentication required; set a user and a password (in a URL: USER:PASSWORD@)".to_owned()
            }
            Code::FailedPrecondition if status.message().contains("authentication is not enabled") => {
                "authentication is not enabled; remove the user and the password".to_owned()
            }
            Code::ResourceExhausted => {
                "the cluster's database is full; compact and defragment it, or raise its quota; then disarm the alarm".to_owned()
            }
            _ => refused_certificate(status)
                .map_or_else(|| "the request failed".to_owned(), |why| format!("the TLS handshake failed: {why}")),
        },
        Client::TransportError(error) => refused_certificate(error)
            .map_or_else(|| "no connection".to_owned(), |why| format!("the TLS handshake failed: {why}")),
        _ => "the request failed".to_owned(),
    };
    StoreError::failed(Explained { what: format!("{what} ({})", said(&source)), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Status;

    #[test]
    fn each_answer_has_its_verdict() {
        for (code, message, expected) in [
            (Code::NotFound, "etcdserver: requested lease not found", Verdict::SessionOver),
            (Code::Unavailable, "etcdserver: no leader", Verdict::Soon),
            (Code::Unavailable, "etcdserver: leader changed", Verdict::Soon),
            (Code::Unavailable, "etcdserver: request timed out", Verdict::Soon),
            (Code::ResourceExhausted, "etcdserver: too many requests", Verdict::Soon),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Verdict::Refused),
            (Code::Unavailable, "tcp connect error", Verdict::Elsewhere),
            (Code::Unknown, "transport error", Verdict::Elsewhere),
            (Code::PermissionDenied, "etcdserver: permission denied", Verdict::Refused),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Verdict::Refused),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", Verdict::Refused),
        ] {
            assert_eq!(verdict(&Client::GRpcStatus(Status::new(code, message))), expected, "{message}");
        }
        assert_eq!(verdict(&Client::LeaseKeepAliveError("lease not found".into())), Verdict::SessionOver);
    }

    #[test]
    fn refusal_says_what_the_cluster_said() {
        let denied = refused(Client::GRpcStatus(Status::permission_denied("etcdserver: permission denied")));
        assert!(denied.to_string().contains("grant the user's role"), "{denied}");
        assert!(denied.to_string().contains("etcdserver: permission denied"), "{denied}");
    }
}
