//! The meaning of the client's errors.

use async_nats::jetstream::{
    ErrorCode,
    context::{RequestError, RequestErrorKind},
};
use std::error::Error;
use tenure_core::StoreError;

/// An error code that the client library does not distinguish.
pub(crate) const NO_BUCKET: ErrorCode = ErrorCode::STREAM_NOT_FOUND;

/// The server's reason for refusing a request.
pub(crate) type Refusal = async_nats::jetstream::Error;

/// Whether another client has written the key since it was read.
pub(crate) fn is_outdated(refusal: &Refusal) -> bool {
    [ErrorCode::STREAM_WRONG_LAST_SEQUENCE, ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT]
        .contains(&refusal.error_code())
}

/// `JetStream` is off, for the server or for the account.
const OFF: [ErrorCode; 2] = [ErrorCode(10039), ErrorCode(10076)];
/// Too few servers of the cluster are there, a server is not the leader, or a stream is offline until its server is back.
const SOON: [ErrorCode; 4] = [ErrorCode(10005), ErrorCode(10009), ErrorCode(10118), ErrorCode(10194)];

/// A server without a quorum, or with too much to do, can answer later. Other errors say what a person has to mend.
pub(crate) fn refused(refusal: Refusal) -> StoreError {
    let (code, status) = (refusal.error_code(), refusal.code());
    let is_temporary = SOON.contains(&code) || [408, 429, 503].contains(&status) && !OFF.contains(&code);
    if is_temporary { StoreError::unavailable(refusal) } else { StoreError::failed(refusal) }
}

/// An error of the client's, with the error that the server sent meanwhile.
#[derive(Debug, thiserror::Error)]
#[error("{what}; the server said: {said}")]
struct Explained {
    what: String,
    said: String,
}

/// A guess. A server that has just started says the same.
const NO_JETSTREAM: &str =
    "JetStream does not answer; if it is off for this server or account, turn it on (nats-server -js)";

fn lacks_jetstream(error: &(dyn Error + 'static)) -> bool {
    let request = error.downcast_ref::<RequestError>();
    let lacks = request.is_some_and(|request| request.kind() == RequestErrorKind::NoResponders);
    lacks || error.source().is_some_and(lacks_jetstream)
}

/// For requests without an answer. The server reports a forbidden one in a message of its own.
pub(crate) fn unanswered(error: impl Into<Box<dyn Error + Send + Sync>>, said: Option<String>) -> StoreError {
    let error = error.into();
    let Some(said) = said else {
        return StoreError::unavailable(if lacks_jetstream(&*error) { NO_JETSTREAM.into() } else { error });
    };
    let explained = Explained { what: error.to_string(), said };
    if explained.said.to_ascii_lowercase().contains("permissions violation") {
        StoreError::failed(explained)
    } else {
        StoreError::unavailable(explained)
    }
}

/// Explains why there is no connection. A server that refuses the user, or whose certificate is refused, will do so again.
pub(crate) fn not_connected(error: async_nats::ConnectError) -> StoreError {
    use async_nats::ConnectErrorKind::{Authentication, AuthorizationViolation, ServerParse, TimedOut, Tls};

    match error.kind() {
        Authentication | AuthorizationViolation | ServerParse => StoreError::failed(error),
        TimedOut => StoreError::unavailable("no server answered in time"),
        kind => {
            let why = error.source().map_or_else(|| kind.to_string(), ToString::to_string);
            if kind == Tls || why.to_ascii_lowercase().contains("certificate") {
                return StoreError::failed(format!("{why}; check the files of tls_ca, tls_cert and tls_key"));
            }
            StoreError::unavailable(format!("no connection: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_refusals_are_asked_again() {
        for (code, err_code, is_temporary) in [
            (503, 10008, true),
            (429, 10167, true),
            (500, 10118, true),
            (400, 10005, true),
            (503, 10039, false),
            (400, 10047, false),
        ] {
            let text = format!(r#"{{"code":{code},"err_code":{err_code},"description":"d"}}"#);
            let refusal: Refusal = serde_json::from_str(&text).unwrap();
            assert_eq!(refused(refusal).is_unavailable(), is_temporary, "{text}");
        }
    }

    #[test]
    fn forbidden_request_is_no_outage() {
        let said = |text: &str| Some(text.to_owned());
        assert!(unanswered("no answer", None).is_unavailable());
        assert!(unanswered("no answer", said("stale connection")).is_unavailable());
        assert!(
            !unanswered("no answer", said("Permissions Violation for Publish to \"a\"")).is_unavailable()
        );
    }
}
