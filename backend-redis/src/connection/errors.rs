//! What Redis's errors mean for locks, and what to do about them.

use redis::{ErrorKind, RedisError};
use std::{error::Error as _, io, sync::Arc};
use tenure_core::StoreError;

/// Why a request has no answer, or none that helps.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    /// Whether the request may have been carried out all the same, or still may be.
    pub(crate) in_doubt: bool,
}

/// An answer that nobody understands says nothing of what was done.
impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { error, in_doubt: true }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// What a failed request means, in words.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Explanation {
    what: String,
    /// Whether the server that failed speaks TLS.
    pub(crate) tls: bool,
    #[source]
    pub(crate) source: RedisError,
}

/// What the server said, or what became of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No answer in time.
    Silent,
    /// The connection could not be had, or broke.
    Cut,
    /// The server hung up.
    HungUp,
    /// The server does not know the script.
    NoScript,
    /// A replica, which takes no writes.
    ReadOnly,
    /// It is starting, or has lost its master, or runs somebody's long script.
    NotReady,
    /// User or password.
    Refused,
    /// No user or password was given.
    Anonymous,
    /// Access rights.
    Forbidden,
    /// The database number.
    NoDatabase,
    /// A key that holds something else.
    WrongType,
    /// A record of which no token can follow.
    BadRecord,
    /// It is full.
    OutOfMemory,
    /// It cannot save.
    CannotSave,
    /// It is a node of a Cluster.
    Cluster,
    /// It is one whose slot is moving to another just now.
    Moving,
    /// TLS, or none, where the server speaks the other.
    Garbled,
    /// Anything else.
    Other,
}

impl Trouble {
    pub(crate) fn of(error: &RedisError) -> Self {
        if error.is_timeout() {
            return Self::Silent;
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => Self::Refused,
            ErrorKind::Parse => Self::Garbled,
            ErrorKind::Io => match io_error(error).map(io::Error::kind) {
                Some(io::ErrorKind::InvalidData) => Self::Garbled,
                Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => Self::HungUp,
                _ => Self::Cut,
            },
            _ => Self::said(error),
        }
    }

    /// From the first word of the server's reply; within scripts, older servers put `ERR` and the place before it.
    fn said(error: &RedisError) -> Self {
        let detail = error.detail().unwrap_or_default();
        let code = match error.code().unwrap_or("ERR") {
            "ERR" => detail.rsplit_once(": -").map_or("ERR", |(_, said)| said),
            code => code,
        };
        match code.split(' ').next().unwrap_or_default() {
            "NOSCRIPT" => Self::NoScript,
            "READONLY" => Self::ReadOnly,
            "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" | "BUSY" | "UNBLOCKED" => Self::NotReady,
            "WRONGPASS" => Self::Refused,
            "NOAUTH" => Self::Anonymous,
            "NOPERM" => Self::Forbidden,
            "WRONGTYPE" => Self::WrongType,
            "BADRECORD" => Self::BadRecord,
            "OOM" => Self::OutOfMemory,
            "MISCONF" => Self::CannotSave,
            "MOVED" | "CROSSSLOT" => Self::Cluster,
            "ASK" | "TRYAGAIN" => Self::Moving,
            _ if detail.contains("WRONGTYPE ") => Self::WrongType,
            _ if error.to_string().contains("refused to switch database") => match detail {
                loading if loading.contains("loading") => Self::NotReady,
                _ => Self::NoDatabase,
            },
            _ => Self::Other,
        }
    }

    /// Whether the connection is to be replaced before the next request. A replica may have been a master when the
    /// connection was made; a timeout leaves a reply behind that nobody waits for, and perhaps a dead line.
    pub(crate) fn spoils_connection(self) -> bool {
        matches!(
            self,
            Self::Silent | Self::Cut | Self::HungUp | Self::ReadOnly | Self::NotReady | Self::Garbled
        )
    }

    /// Whether the connection is no more.
    pub(crate) fn is_broken(self) -> bool {
        matches!(self, Self::Cut | Self::HungUp)
    }

    /// Whether a request that ended so may have been carried out, or may still be.
    pub(crate) fn leaves_doubt(self) -> bool {
        self.is_broken() || matches!(self, Self::Silent | Self::Garbled)
    }

    /// Whether asking again may help.
    fn may_pass(self) -> bool {
        matches!(
            self,
            Self::Silent
                | Self::Cut
                | Self::HungUp
                | Self::NoScript
                | Self::ReadOnly
                | Self::NotReady
                | Self::Moving
                // In a Cluster two nodes may point at each other for the moment in which a slot changes hands.
                | Self::Cluster
                | Self::Garbled
        )
    }
}

/// A key of another type, or one beside it.
pub(crate) fn no_lock(key: &str) -> String {
    format!(
        "the key {key:?} holds something that is no lock, or one of those that tenure keeps beside it does, so another \
         program uses it; choose another prefix, or move that key"
    )
}

/// The key and what is in it stand between separators, which no name holds.
fn bad_record(detail: &str) -> String {
    let mut parts = detail.split('\u{1e}').skip(1);
    let (key, last) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let last = if last.is_empty() { "no text".to_owned() } else { format!("{last:?}") };
    format!(
        "the key {key:?}, in which the last token of a lock is remembered, holds {last}, which another program wrote: \
         no greater token follows it, since Redis counts no further than 2^53 - 1; delete that key, and the next token \
         is the server's clock"
    )
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    match source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>() {
        Some(shared) => shared.downcast_ref(),
        None => source.downcast_ref(),
    }
}

/// A server as errors name it.
#[derive(Clone, Debug)]
pub(crate) struct ServerName {
    /// The address, without user and password.
    pub(crate) address: Arc<str>,
    pub(crate) database: i64,
    pub(crate) tls: bool,
    /// Whether sentinels say which server it is.
    pub(crate) watched: bool,
}

impl ServerName {
    /// What a failed request means.
    pub(crate) fn explain(&self, source: RedisError) -> StoreError {
        let trouble = Trouble::of(&source);
        let what = self.what(trouble, &source);
        let fault = Explanation { what, tls: self.tls, source };
        if trouble.may_pass() { StoreError::unavailable(fault) } else { StoreError::failed(fault) }
    }

    /// The same, for a request about one key.
    pub(crate) fn explain_for(&self, key: &str, source: RedisError) -> StoreError {
        match Trouble::of(&source) {
            Trouble::WrongType => {
                StoreError::failed(Explanation { what: no_lock(key), tls: self.tls, source })
            }
            _ => self.explain(source),
        }
    }

    fn what(&self, trouble: Trouble, source: &RedisError) -> String {
        let Self { address, database, .. } = self;
        match trouble {
            Trouble::Silent if self.tls => {
                format!(
                    "{address} did not answer in time; if it does not speak TLS, write redis: in place of rediss:"
                )
            }
            Trouble::Silent => format!("{address} did not answer in time"),
            Trouble::HungUp => {
                format!(
                    "{address} closed the connection; perhaps it wants TLS (rediss:), or has as many clients as it allows"
                )
            }
            Trouble::Garbled if self.tls => {
                format!(
                    "no TLS with {address}: {source}; check its certificate, or write redis: if it speaks none"
                )
            }
            Trouble::Garbled => {
                format!("{address} does not speak Redis's protocol here; if it wants TLS, write rediss:")
            }
            Trouble::NoScript => format!("{address} forgot a script while it was being used"),
            Trouble::ReadOnly if self.watched => {
                format!("{address} has become a replica; the sentinels are asked for the new master")
            }
            Trouble::ReadOnly => format!(
                "{address} is a read-only replica; name the master, or redis+sentinel: if Sentinel watches over them"
            ),
            Trouble::NotReady => format!("{address} is not ready: {source}"),
            Trouble::Refused => format!("{address} refused the user or the password; check them"),
            Trouble::Anonymous => format!("{address} wants a password; write redis://USER:PASSWORD@HOST"),
            Trouble::Forbidden => format!(
                "{address} forbids this user what locks need ({source}); allow it keys and channels that begin with \
                 the prefix, and the commands that docs/redis.md lists"
            ),
            Trouble::NoDatabase => format!("{address} has no database {database}"),
            Trouble::BadRecord => bad_record(source.detail().unwrap_or_default()),
            Trouble::WrongType => format!("{address}: a key holds something that is no lock ({source})"),
            Trouble::OutOfMemory => format!("{address} has no memory left; raise its maxmemory"),
            Trouble::CannotSave => {
                format!("{address} cannot save to its disk, and takes no writes until it can")
            }
            Trouble::Moving => format!("{address}: the slot is moving to another node just now ({source})"),
            Trouble::Cluster => format!("{address} is a node of a Redis Cluster; write redis+cluster:"),
            Trouble::Cut | Trouble::Other => format!("{address}: {source}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn whatever_a_server_refuses_with_is_explained(
            code in "[A-Z]{1,10}|BADRECORD|MOVED|ASK|ERR|OOM",
            detail in ".{0,40}|\u{1e}.{0,9}\u{1e}.{0,9}\u{1e}.{0,9}|[0-9]{1,6} [^ ]{0,12}:[0-9]{0,7}",
        ) {
            let server = ServerName { address: "host:6379".into(), database: 0, tls: false, watched: false };
            let refusal = || redis::make_extension_error(code.clone(), Some(detail.clone()));
            let error = server.explain_for("tenure:a", refusal());
            proptest::prop_assert!(!error.to_string().is_empty());
            proptest::prop_assert_eq!(Trouble::of(&refusal()) == Trouble::BadRecord, code == "BADRECORD");
        }
    }

    #[test]
    fn a_bad_record_is_named_with_what_is_in_it() {
        let told = bad_record(
            "\u{1e}t:a: -OOM \"x\"\u{1f}r\u{1e}9007199254740992 me\u{1e} script: f, on @user_script:1.",
        );
        for part in [r#""t:a: -OOM \"x\"\u{1f}r""#, r#""9007199254740992 me""#, "2^53 - 1", "delete that key"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(bad_record("\u{1e}t:a\u{1e}\u{1e}").contains("holds no text,"));
        assert!(!bad_record("").is_empty());
    }
}
