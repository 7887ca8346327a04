//! The meaning of the client's errors for locks, and what to do about them.

use tenure_core::StoreError;
use zookeeper_client::Error as Client;

/// The outcome of a failed request, by its error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The server refused it: nothing was changed.
    Refused,
    /// It is unknown whether it was carried out; the session may still live.
    Unknown,
    /// The session has ended, and with it everything held in it.
    SessionOver,
}

pub(crate) fn verdict(error: &Client) -> Verdict {
    match error {
        // `UnexpectedError` means that the client's own task is gone, for instance with its runtime.
        Client::SessionExpired | Client::ClientClosed | Client::AuthFailed | Client::UnexpectedError(_) => {
            Verdict::SessionOver
        }
        Client::NoNode
        | Client::NoAuth
        | Client::BadVersion
        | Client::NoChildrenForEphemerals
        | Client::NodeExists
        | Client::NotEmpty
        | Client::InvalidAcl
        | Client::BadArguments(_)
        | Client::NotReadOnly
        | Client::QuotaExceeded
        | Client::MarshallingError
        | Client::Unimplemented
        | Client::UnexpectedErrorCode(_) => Verdict::Refused,
        _ => Verdict::Unknown,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Explained {
    what: String,
    #[source]
    source: Client,
}

/// The meaning of a failed request about `path`.
pub(crate) fn explain(path: &str, source: Client) -> StoreError {
    let what = match &source {
        Client::NoAuth => {
            format!("no permission on {path}; connect as the user who created it, or change its ACL")
        }
        Client::NoNode => format!("{path} cannot be created because the chroot does not exist; create it"),
        Client::NoChildrenForEphemerals => {
            format!(
                "{path}, or the node above it, is another client's ephemeral node, which cannot have children; delete it, or use another prefix"
            )
        }
        Client::NotEmpty => {
            format!(
                "a node in {path} has children, so another program created it; delete it and its children"
            )
        }
        Client::AuthFailed => "the server refused the credentials; check user and password".to_owned(),
        Client::QuotaExceeded => format!("the quota of {path} is used up; raise it"),
        Client::InvalidAcl => {
            format!("the server accepted no entry of the ACL for {path}; connect with credentials")
        }
        Client::NotReadOnly => "the server has lost its quorum and is read-only".to_owned(),
        Client::NoHosts | Client::Timeout | Client::ConnectionLoss => "no server answered".to_owned(),
        Client::SessionExpired => "the session expired".to_owned(),
        Client::ClientClosed => "the session was closed".to_owned(),
        _ => format!("a request for {path} failed"),
    };
    let again = match &source {
        Client::AuthFailed => false,
        Client::NotReadOnly => true,
        other => verdict(other) != Verdict::Refused,
    };
    let explained = Explained { what, source };
    if again { StoreError::unavailable(explained) } else { StoreError::failed(explained) }
}
