//! The meaning of Redis's errors for locks, and what to do about them.

use super::tls;
use redis::{ErrorKind, RedisError};
use std::{error::Error, fmt, io, sync::Arc};
use tenure_core::StoreError;

/// Why a request has no answer, or no usable one.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    /// Whether the request may have been carried out anyway, or still may be.
    pub(crate) in_doubt: bool,
}

/// After an unreadable answer, the request may have been carried out.
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

/// The meaning of a failed request.
#[derive(Debug)]
pub(crate) struct Explanation {
    what: String,
    /// Whether the server that failed speaks TLS.
    pub(crate) tls: bool,
    pub(crate) source: Said,
}

/// The client library's error, without the kinds of its own that it writes between the server's words.
#[derive(Debug)]
pub(crate) struct Said(pub(crate) RedisError);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words(&self.0))
    }
}

impl Error for Said {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Explanation {
    /// The error behind it, unless this has all its words.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if self.what.contains(&self.source.to_string()) { self.source.source() } else { Some(&self.source) }
    }
}

/// The kind of a failure: the server's error, or the end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No answer in time.
    Silent,
    /// The connection could not be made, or broke.
    Cut,
    /// The server hung up.
    HungUp,
    /// The server does not know the script.
    NoScript,
    /// A replica, which takes no writes.
    ReadOnly,
    /// It is starting, or has lost its master, or runs another program's long script.
    NotReady,
    /// It admits no more clients.
    Full,
    /// It admits no clients from other machines: it is in protected mode.
    Denied,
    /// User or password is wrong.
    Refused,
    /// No user or password was given.
    Anonymous,
    /// The user lacks a permission.
    Forbidden,
    /// There is no database of that number.
    NoDatabase,
    /// A key that holds something else.
    WrongType,
    /// A record after which no token can follow.
    BadRecord,
    /// Its memory is full.
    OutOfMemory,
    /// It cannot save to disk.
    CannotSave,
    /// It is a node of a Cluster.
    Cluster,
    /// Its keys are on several servers, and a request was about more than one of them.
    CrossSlot,
    /// It is a node whose slot is just being moved to another.
    Moving,
    /// The client uses TLS and the server does not, or the other way round.
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
                // The `redis` crate also calls a connection that has ended a broken pipe.
                Some(
                    io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe,
                ) => Self::HungUp,
                _ => Self::Cut,
            },
            _ => Self::said(error),
        }
    }

    /// Classifies by the first word of the server's reply. For errors in scripts, older servers put `ERR` and the
    /// position before it.
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
            "DENIED" => Self::Denied,
            "NOAUTH" => Self::Anonymous,
            "NOPERM" => Self::Forbidden,
            "WRONGTYPE" => Self::WrongType,
            "BADRECORD" => Self::BadRecord,
            "OOM" => Self::OutOfMemory,
            "MISCONF" => Self::CannotSave,
            "MOVED" => Self::Cluster,
            "CROSSSLOT" => Self::CrossSlot,
            "ASK" | "TRYAGAIN" => Self::Moving,
            _ if detail.contains("max number of clients") => Self::Full,
            _ if detail.contains("WRONGTYPE ") => Self::WrongType,
            // In a script, Redis before 7.2 gives no code.
            _ if detail.contains("The user executing the script ") => Self::Forbidden,
            _ if detail.contains("WAIT cannot be used with") => Self::ReadOnly,
            _ if error.to_string().contains("refused to switch database") => Self::not_selected(detail),
            _ => Self::Other,
        }
    }

    /// Classifies a refusal of `SELECT`. The `redis` crate leaves out the first word of that reply.
    fn not_selected(detail: &str) -> Self {
        let detail = detail.to_lowercase();
        if detail.contains("loading") || detail.contains("busy") {
            Self::NotReady
        } else if detail.contains("authentication required") {
            Self::Anonymous
        } else if detail.contains("permission") {
            Self::Forbidden
        } else {
            Self::NoDatabase
        }
    }

    /// Whether to replace the connection before the next request. A replica may have been the master when the
    /// connection was made. A timeout leaves behind an unread reply, or a dead connection.
    pub(crate) fn spoils_connection(self) -> bool {
        matches!(
            self,
            Self::Silent | Self::Cut | Self::HungUp | Self::ReadOnly | Self::NotReady | Self::Garbled
        )
    }

    /// Whether the connection has ended.
    pub(crate) fn is_broken(self) -> bool {
        matches!(self, Self::Cut | Self::HungUp)
    }

    /// Whether a request that failed like this may have been carried out, or may still be.
    pub(crate) fn leaves_doubt(self) -> bool {
        self.is_broken() || matches!(self, Self::Silent | Self::Garbled)
    }

    /// Whether a call that was refused together with others may do better by itself, because another one is the reason,
    /// or because the server knows the call's own script. Any other refusal would be the same for each of them.
    pub(crate) fn may_be_of_one(self) -> bool {
        matches!(
            self,
            Self::NoScript
                | Self::Forbidden
                | Self::WrongType
                | Self::BadRecord
                | Self::Cluster
                | Self::CrossSlot
                | Self::Moving
                | Self::Other
        )
    }

    /// Whether asking again may help.
    pub(crate) fn may_pass(self) -> bool {
        matches!(
            self,
            Self::Silent
                | Self::Cut
                | Self::HungUp
                | Self::NoScript
                | Self::ReadOnly
                | Self::NotReady
                | Self::Full
                | Self::Moving
                // In a Cluster, two nodes may point at each other for a moment while a slot changes hands.
                | Self::Cluster
                | Self::Garbled
        )
    }
}

/// The message for a key, or one of tenure's keys next to it, that has the wrong type.
pub(crate) fn no_lock(key: &str) -> String {
    format!(
        "the key {key:?}, or a key of tenure's beside it, holds no lock, so another program uses it; choose another \
         prefix, or move that key"
    )
}

/// The key and its content are between separators, which no name contains.
fn bad_record(detail: &str) -> String {
    let mut parts = detail.split('\u{1e}').skip(1);
    let (key, last) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Format 1 begins with a token.
    let mut words = last.split(' ');
    let is_named = words.next() == Some("format");
    let format = words.next().and_then(|format| format.parse::<u32>().ok()).filter(|format| *format > 1);
    if let (true, Some(format)) = (is_named, format) {
        return format!(
            "the key {key:?} has format {format}, and this version of tenure reads format 1; update this program"
        );
    }
    let last = if last.is_empty() { "no text".to_owned() } else { format!("{last:?}") };
    format!(
        "the key {key:?} is for a lock's last token, but holds {last}, which another program wrote; no greater token \
         can follow, because Redis counts only up to 2^53 - 1; delete that key, and tokens go on from the server's \
         clock"
    )
}

/// The error without the kind that the `redis` crate writes before its detail, or at the end.
pub(super) fn words(error: &RedisError) -> String {
    let (text, kind) = (error.to_string(), format!(" - {:?}", error.kind()));
    match text.strip_suffix(&kind) {
        Some(words) => words.to_owned(),
        None => text.replacen(&(kind + ": "), ": ", 1),
    }
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    match source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>() {
        Some(shared) => shared.downcast_ref(),
        None => source.downcast_ref(),
    }
}

/// A server's name in errors.
#[derive(Clone, Debug)]
pub(crate) struct ServerName {
    /// The address, without user and password.
    pub(crate) address: Arc<str>,
    pub(crate) database: i64,
    pub(crate) tls: bool,
    /// Whether sentinels name this server.
    pub(crate) watched: bool,
    /// Whether it has answered this client before.
    pub(crate) has_answered: bool,
}

impl ServerName {
    /// The meaning of a failed request.
    pub(crate) fn explain(&self, source: RedisError) -> StoreError {
        let trouble = Trouble::of(&source);
        let what = self.what(trouble, &source);
        let fault = Explanation { what, tls: self.tls, source: Said(source) };
        if trouble.may_pass() { StoreError::unavailable(fault) } else { StoreError::failed(fault) }
    }

    /// The meaning of a failed request about one key.
    pub(crate) fn explain_for(&self, key: &str, source: RedisError) -> StoreError {
        match Trouble::of(&source) {
            Trouble::WrongType => {
                StoreError::failed(Explanation { what: no_lock(key), tls: self.tls, source: Said(source) })
            }
            _ => self.explain(source),
        }
    }

    /// Guesses, the likeliest first.
    fn reasons_to_hang_up(&self) -> &'static str {
        match (self.has_answered, self.tls) {
            (true, _) => {
                "it is shutting down or restarting, it has reached its limit of clients, or it or a proxy ended the \
                 connection"
            }
            (false, true) => {
                "it has no TLS (write redis: instead of rediss:), it requires a client certificate (tls_cert, tls_key), \
                 it has reached its limit of clients, it is starting or shutting down, or a proxy has no server"
            }
            (false, false) => {
                "it requires TLS (write rediss: instead of redis:), it is not a Redis server, it is starting or shutting \
                 down, or a proxy has no server"
            }
        }
    }

    fn what(&self, trouble: Trouble, source: &RedisError) -> String {
        let Self { address, database, .. } = self;
        let said = words(source);
        match trouble {
            Trouble::Silent if self.tls => {
                format!(
                    "{address} did not answer in time; if it does not speak TLS, write redis: instead of rediss: in its URL"
                )
            }
            Trouble::Silent => format!("{address} did not answer in time"),
            Trouble::HungUp => format!(
                "{address} closed the connection and gave no reason; possible reasons: {}",
                self.reasons_to_hang_up()
            ),
            Trouble::Full => {
                format!("{address} has reached its limit of clients ({said}); raise its maxclients")
            }
            Trouble::Denied => format!(
                "{address} refuses clients from other machines ({said}); set a password on the server, or connect from \
                 its own machine"
            ),
            Trouble::Garbled if self.tls => {
                let advice = io_error(source).and_then(tls::advice);
                let advice = advice.unwrap_or("check its certificate, or write redis: if it has no TLS");
                format!("TLS handshake with {address} failed: {said}; {advice}")
            }
            Trouble::Garbled => {
                format!("{address} does not speak the Redis protocol; if it requires TLS, write rediss:")
            }
            Trouble::NoScript => format!("{address} dropped a cached script during a request"),
            Trouble::ReadOnly if self.watched => {
                format!("{address} has become a replica; asking the sentinels for the new master")
            }
            Trouble::ReadOnly => format!(
                "{address} is a read-only replica; give the master's address, or use redis+sentinel: if there are sentinels"
            ),
            Trouble::NotReady => format!("{address} is not ready: {said}"),
            // The `redis` crate does not keep the server's words.
            Trouble::Refused => format!(
                "{address} refused the user or the password; check them, or omit them if the server has none"
            ),
            Trouble::Anonymous => format!(
                "{address} requires a password; write redis://USER:PASSWORD@HOST, or give a password_file"
            ),
            Trouble::Forbidden => format!(
                "{address} denies this user a permission that locks need ({said}; see its ACL LOG); allow the user keys \
                 and channels that begin with the prefix, and the commands that https://docs.rs/tenure-redis lists"
            ),
            Trouble::NoDatabase => {
                format!("{address} has no database {database}; give the number of an existing one")
            }
            Trouble::BadRecord => bad_record(source.detail().unwrap_or_default()),
            Trouble::WrongType => {
                format!("{address}: a key holds no lock, so another program uses it ({said})")
            }
            Trouble::OutOfMemory => format!("{address} has no memory left; raise its maxmemory"),
            Trouble::CannotSave => {
                format!("{address} cannot save to its disk, and accepts no writes until it can; see its log")
            }
            Trouble::Moving => format!("{address}: the slot is moving to another node ({said})"),
            Trouble::Cluster => format!("{address} is a node of a Redis Cluster; write redis+cluster:"),
            Trouble::CrossSlot => format!(
                "{address} keeps these names in different shards, so they need separate requests; if it is a node of a \
                 Redis Cluster, write redis+cluster:"
            ),
            Trouble::Cut => format!("no connection to {address}: {said}"),
            Trouble::Other => format!("{address}: {said}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_server_error_is_explained(
            code in "[A-Z]{1,10}|BADRECORD|MOVED|ASK|ERR|OOM",
            detail in ".{0,40}|\u{1e}.{0,9}\u{1e}.{0,9}\u{1e}.{0,9}|[0-9]{1,6} [^ ]{0,12}:[0-9]{0,7}",
        ) {
            let server = ServerName {
                address: "host:6379".into(),
                database: 0,
                tls: false,
                watched: false,
                has_answered: false,
            };
            let refusal = || redis::make_extension_error(code.clone(), Some(detail.clone()));
            let error = server.explain_for("tenure:a", refusal());
            proptest::prop_assert!(!error.to_string().is_empty());
            proptest::prop_assert_eq!(Trouble::of(&refusal()) == Trouble::BadRecord, code == "BADRECORD");
        }
    }

    #[test]
    fn errors_suggest_tls_only_until_the_server_has_answered() {
        let said = |tls, has_answered| {
            let server =
                ServerName { address: "host:6379".into(), database: 0, tls, watched: false, has_answered };
            server.explain(io::Error::from(io::ErrorKind::ConnectionReset).into()).to_string()
        };
        assert!(said(false, false).contains("it requires TLS (write rediss:"), "{}", said(false, false));
        assert!(said(true, false).contains("it has no TLS (write redis:"), "{}", said(true, false));
        for tls in [false, true] {
            assert!(!said(tls, true).contains("TLS"), "{}", said(tls, true));
            assert!(said(tls, false).contains("possible reasons"), "{}", said(tls, false));
        }
        // Over TLS, a server that has too many clients says nothing.
        assert!(said(true, false).contains("limit of clients"), "{}", said(true, false));
    }

    #[test]
    fn missing_database_is_told_from_other_errors() {
        let trouble = |detail: &str| {
            let kind = ErrorKind::Server(redis::ServerErrorKind::ResponseError);
            Trouble::of(&(kind, "Redis server refused to switch database", detail.to_owned()).into())
        };
        assert_eq!(trouble("DB index is out of range"), Trouble::NoDatabase);
        assert_eq!(trouble("Redis is loading the dataset in memory"), Trouble::NotReady);
        assert_eq!(trouble("Valkey is busy running a script."), Trouble::NotReady);
        assert_eq!(trouble("Authentication required."), Trouble::Anonymous);
        assert_eq!(trouble("User app has no permissions to run the 'select' command"), Trouble::Forbidden);
    }

    /// Redis 6, 7.0 and 7.2, each to a script.
    #[test]
    fn missing_permission_in_a_script_is_recognized() {
        let denied = "The user executing the script can't run this command or subcommand";
        let older =
            format!("Error running script (call to f_0f3c): @user_script:1: @user_script: 1: {denied}");
        let old = format!("{denied} script: 0f3c, on @user_script:1.");
        let new = "ACL failure in script: User app has no permissions to run the 'get' command script: 0f3c, on @user_script:1.";
        for (code, detail) in [("ERR", &*older), ("ERR", &old), ("NOPERM", new)] {
            let said = redis::make_extension_error(code.to_owned(), Some(detail.to_owned()));
            assert_eq!(Trouble::of(&said), Trouble::Forbidden, "{detail}");
        }
    }

    #[test]
    fn bad_record_error_shows_key_and_content() {
        let told = bad_record(
            "\u{1e}t:a: -OOM \"x\"\u{1f}r\u{1e}9007199254740992 me\u{1e} script: f, on @user_script:1.",
        );
        for part in [r#""t:a: -OOM \"x\"\u{1f}r""#, r#""9007199254740992 me""#, "2^53 - 1", "delete that key"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(bad_record("\u{1e}t:a\u{1e}\u{1e}").contains("holds no text,"));
        let later = bad_record("\u{1e}t:a\u{1e}format 2 1700000000000000 me\u{1e}");
        assert!(later.contains("format 2, and this version of tenure reads format 1"), "{later}");
        assert!(!bad_record("").is_empty());
    }
}
