//! The error type that users see.

use crate::contract::{
    Capability, Holder, InvalidName, LossCause, Mode, Name, StoreError, excerpt::excerpt, store_error::Kind,
};
use std::{fmt, iter, ops::RangeInclusive, sync::Arc, time::Duration};

/// An error: what went wrong, with which name in which store, and what to do.
///
/// Messages never contain passwords.
///
/// `{}` is the message, with the reason that the store gave. `{:?}` adds the other [`causes`](Self::causes), because a
/// program whose `main` returns the error prints it in this form. `{:#?}` shows the variant and its fields.
///
/// # Examples
///
/// ```
/// use tenure_core::{Error, Operation, StoreError};
///
/// let refused = StoreError::failed("the server's disk is full; make room on it");
/// let error = Error::from_store(&"postgres://db:5432/app".into(), Operation::Connecting, refused);
/// assert_eq!(
///     error.to_string(),
///     "postgres://db:5432/app failed (connecting): the server's disk is full; make room on it"
/// );
/// assert!(format!("{error:#?}").starts_with("Store {\n"));
/// ```
#[non_exhaustive]
pub enum Error {
    /// The lock was not acquired within the time set with [`wait`](crate::Lock::wait).
    #[non_exhaustive]
    Timeout {
        /// The lock's name.
        name: Name,
        /// The store.
        store: Arc<str>,
        /// How long the acquisition was allowed to wait.
        waited: Duration,
        /// The holders shortly before the wait was over. An exclusive holder in this client is always named, with times
        /// by this process's clock. Otherwise empty if the name was free just then, if the store cannot tell or did not
        /// answer in time, if the wait was zero, and if other tasks of this client came first for most of it.
        holders: Vec<Holder>,
    },
    /// The grant ended before its guard was released. Unless its own [`max_hold`](crate::Lock::max_hold) ended it,
    /// another holder may have changed protected data.
    #[non_exhaustive]
    Lost {
        /// The lock's name.
        name: Name,
        /// The store.
        store: Arc<str>,
        /// Why.
        cause: LossCause,
        /// Why the last renewal failed, if its lease expired for that reason.
        renewal: Option<Arc<str>>,
    },
    /// The [`owner`](crate::Lock::owner) already holds the name in a mode that does not cover the requested one, so it
    /// would wait for itself.
    #[non_exhaustive]
    WouldDeadlock {
        /// The lock's name.
        name: Name,
        /// The store.
        store: Arc<str>,
        /// The mode in which the owner holds it.
        held: Mode,
        /// The mode that the owner asked for.
        wanted: Mode,
    },
    /// The store could not be reached or did not answer in time.
    #[non_exhaustive]
    Unavailable {
        /// The store.
        store: Arc<str>,
        /// The operation.
        during: Operation,
        /// The reason that the store or its client library gave.
        source: StoreError,
    },
    /// The text is not a valid lock name.
    InvalidName(InvalidName),
    /// An option has an invalid value.
    #[non_exhaustive]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value that was given; empty if the option is missing.
        given: String,
        /// Which values are valid: the message puts "expected" before it.
        allowed: String,
    },
    /// The URL of a store is invalid. The page `docs/urls.md` and `tenure help urls` list all forms.
    #[non_exhaustive]
    InvalidUrl {
        /// The URL, without password and query.
        url: String,
        /// The mistake in it.
        problem: String,
        /// How to correct it.
        valid: String,
    },
    /// The state of the guard's hold does not allow the call.
    #[non_exhaustive]
    Conflict {
        /// The lock's name.
        name: Name,
        /// The store.
        store: Arc<str>,
        /// The obstacle, and what to do.
        problem: String,
    },
    /// Clients disagree about how many permits a semaphore has, or how many parties a latch waits for.
    #[non_exhaustive]
    Mismatch {
        /// The store.
        store: Arc<str>,
        /// The operation.
        during: Operation,
        /// Both numbers, as text.
        source: StoreError,
    },
    /// The store does not support this.
    #[non_exhaustive]
    Unsupported {
        /// The store.
        store: Arc<str>,
        /// The missing capability.
        capability: Capability,
    },
    /// [`Locks::close`](crate::Locks::close) was called.
    #[non_exhaustive]
    Closed {
        /// The store.
        store: Arc<str>,
    },
    /// The store answered that it cannot carry out the request, and asking again will not help.
    #[non_exhaustive]
    Store {
        /// The store.
        store: Arc<str>,
        /// The operation.
        during: Operation,
        /// The reason that the store or its client library gave.
        source: StoreError,
    },
}

impl Error {
    /// Returns whether the same call may succeed later although nothing is repaired.
    ///
    /// `false` after a loss, and if a release failed: check first what the lock protected.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Unavailable { during, .. } => !matches!(during, Operation::Releasing(_)),
            _ => false,
        }
    }

    /// Returns its causes, the outermost first: the text of each [`source`](std::error::Error::source). A text that the
    /// one before it already contains is left out.
    pub fn causes(&self) -> impl Iterator<Item = String> {
        let mut before = self.to_string();
        let sources = iter::successors(std::error::Error::source(self), |error| error.source());
        sources.filter_map(move |source| {
            let text = source.to_string();
            let is_news = !before.contains(&text);
            before.clone_from(&text);
            is_news.then_some(text)
        })
    }

    /// Shows the variant and its fields, as a derived `Debug` does.
    fn show_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // If a variant or a field is missing here, this does not compile.
        macro_rules! show {
            ($($variant:ident { $($field:ident),+ })+) => {
                match self {
                    Self::InvalidName(error) => f.debug_tuple("InvalidName").field(error).finish(),
                    $(
                        Self::$variant { $($field),+ } => {
                            f.debug_struct(stringify!($variant))$(.field(stringify!($field), $field))+.finish()
                        }
                    )+
                }
            };
        }
        show! {
            Timeout { name, store, waited, holders }
            Lost { name, store, cause, renewal }
            WouldDeadlock { name, store, held, wanted }
            Unavailable { store, during, source }
            InvalidOption { option, given, allowed }
            InvalidUrl { url, problem, valid }
            Conflict { name, store, problem }
            Mismatch { store, during, source }
            Unsupported { store, capability }
            Closed { store }
            Store { store, during, source }
        }
    }

    /// Makes an [`InvalidOption`](Self::InvalidOption) error.
    pub fn invalid_option(
        option: &'static str,
        given: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        Self::InvalidOption { option, given: given.to_string(), allowed: allowed.into() }
    }

    /// Returns the value that was given for an option, if it is in this range.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Self::InvalidOption), with the range.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_core::Error;
    ///
    /// assert_eq!(Error::check_range("connections", 4, &(1..=8))?, 4);
    /// let refused = Error::check_range("connections", 9, &(1..=8)).unwrap_err();
    /// assert!(refused.to_string().contains("1 to 8"));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn check_range<T: PartialOrd + fmt::Debug>(
        option: &'static str,
        given: T,
        range: &RangeInclusive<T>,
    ) -> Result<T, Self> {
        if range.contains(&given) {
            return Ok(given);
        }
        let allowed = format!("{:?} to {:?}", range.start(), range.end());
        Err(Self::invalid_option(option, format_args!("{given:?}"), allowed))
    }

    /// Quotes a text that is refused, or its first 40 characters, for an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_core::Error;
    ///
    /// assert_eq!(Error::excerpt("two\nlines"), r#""two\nlines""#);
    /// assert!(Error::excerpt(&"a".repeat(50)).ends_with("a\"…"));
    /// ```
    #[must_use]
    pub fn excerpt(text: &str) -> String {
        excerpt(text)
    }

    /// Makes an error from a backend's, adding the store and the operation.
    #[must_use]
    pub fn from_store(store: &Arc<str>, during: Operation, source: StoreError) -> Self {
        let store = Arc::clone(store);
        match source.kind {
            Kind::Unavailable | Kind::ClaimSpent => Self::Unavailable { store, during, source },
            Kind::Failed => Self::Store { store, during, source },
            Kind::Mismatch => Self::Mismatch { store, during, source },
            Kind::Unsupported(capability) => Self::Unsupported { store, capability },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { name, store, waited, holders } => {
                let reason = reason(holders);
                let waited = humantime::format_duration(*waited);
                write!(f, "lock {name:?} in {store} was not acquired within {waited}: {reason}")
            }
            Self::Lost { name, store, cause, renewal } => {
                let ended = if *cause == LossCause::MaxHold { "ended" } else { "was lost" };
                write!(f, "lock {name:?} in {store} {ended}: {cause}; ")?;
                if let Some(why) = renewal {
                    write!(f, "the last renewal failed: {why}; ")?;
                }
                f.write_str(cause.consequence())
            }
            Self::WouldDeadlock { name, store, held, wanted } => {
                let or = if *held == Mode::Shared { ", or upgrade the reader's guard" } else { "" };
                write!(
                    f,
                    "the owner already holds lock {name:?} in {store} {held}, so acquiring it {wanted} would deadlock; \
                     release it first{or}"
                )
            }
            Self::Unavailable { store, during, source } => {
                write!(f, "{store} is unavailable ({during}): {source}; ")?;
                match during {
                    Operation::Releasing(_) => {
                        write!(f, "the lock becomes free when its lease or session ends")
                    }
                    // The standard library's words for a failed DNS lookup.
                    _ if source.to_string().contains("lookup address information") => {
                        write!(f, "check the host name and DNS, then try again")
                    }
                    // The reason already names a next step.
                    _ if source.to_string().contains("; ") => write!(f, "then try again"),
                    _ => write!(f, "check that the store is running and reachable, then try again"),
                }
            }
            Self::InvalidName(invalid) => write!(f, "{invalid}"),
            Self::InvalidOption { option, given, allowed } if given.is_empty() => {
                write!(f, "missing {option}; expected {allowed}")
            }
            Self::InvalidOption { option, given, allowed } => {
                write!(f, "invalid {option}: {given}; expected {allowed}")
            }
            Self::InvalidUrl { url, problem, valid } => {
                write!(f, "invalid store URL {url:?}: {problem}; {valid}")
            }
            Self::Conflict { name, store, problem } => write!(f, "lock {name:?} in {store} {problem}"),
            Self::Mismatch { store, during, source } => {
                write!(f, "the clients of {store} disagree ({during}): {source}")
            }
            Self::Unsupported { store, capability } => write!(f, "{store} does not support {capability}"),
            Self::Closed { store } => {
                write!(f, "this client of {store} is closed; connect again to acquire locks")
            }
            Self::Store { store, during, source } => write!(f, "{store} failed ({during}): {source}"),
        }
    }
}

impl std::error::Error for Error {
    /// The cause of the reason that the message ends with.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable { source, .. } | Self::Mismatch { source, .. } | Self::Store { source, .. } => {
                source.source()
            }
            _ => None,
        }
    }
}

impl From<InvalidName> for Error {
    fn from(invalid: InvalidName) -> Self {
        Self::InvalidName(invalid)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return self.show_fields(f);
        }
        write!(f, "{self}")?;
        self.causes().try_for_each(|cause| write!(f, "\n  because: {cause}"))
    }
}

/// Why a lock was not acquired in time.
fn reason(holders: &[Holder]) -> String {
    match holders {
        [] => "it is held, or the store is slow".to_owned(),
        [holder] => format!("held by {holder}"),
        [one, other] => format!("held by {one} and {other}"),
        [holder, others @ ..] => format!("held by {holder} and {} others", others.len()),
    }
}

/// The operation during which a store failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Opening the store.
    Connecting,
    /// Acquiring this lock.
    Acquiring(Name),
    /// Extending this lock's lease.
    Extending(Name),
    /// Upgrading or downgrading this lock.
    Converting(Name),
    /// Releasing this lock.
    Releasing(Name),
    /// Counting down this latch, or checking it.
    AtLatch(Name),
    /// Listing holders or waiters.
    Looking,
    /// Releasing this lock by force.
    Forcing(Name),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => write!(f, "connecting"),
            Self::Acquiring(name) => write!(f, "acquiring {name:?}"),
            Self::Extending(name) => write!(f, "extending {name:?}"),
            Self::Converting(name) => write!(f, "converting {name:?}"),
            Self::Releasing(name) => write!(f, "releasing {name:?}"),
            Self::AtLatch(name) => write!(f, "using latch {name:?}"),
            Self::Looking => write!(f, "listing holders or waiters"),
            Self::Forcing(name) => write!(f, "releasing {name:?} by force"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error with a cause.
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Link(&'static str, #[source] Option<Box<Link>>);

    fn unavailable() -> Error {
        let reset = Link("connection reset", None);
        let io = Link("I/O error: connection reset", Some(Box::new(reset)));
        let driver = Link("no connection to db:5432", Some(Box::new(io)));
        let (store, name) = ("postgres://db:5432/app".into(), Name::new("a").unwrap());
        Error::from_store(&store, Operation::Acquiring(name), StoreError::unavailable(driver))
    }

    /// After a failed `unwrap`, or when `main` returns the error.
    #[test]
    fn debug_format_shows_message_and_causes() {
        let shown = format!("{:?}", Err::<(), _>(unavailable()));
        let expected = [
            r#"Err(postgres://db:5432/app is unavailable (acquiring "a"): no connection to db:5432; check that the store is running and reachable, then try again"#,
            "  because: I/O error: connection reset)",
        ];
        assert_eq!(shown, expected.join("\n"));
        let lookup = StoreError::unavailable("failed to lookup address information: unknown");
        let unknown = Error::from_store(&"redis://x".into(), Operation::Connecting, lookup).to_string();
        assert!(unknown.ends_with("; check the host name and DNS, then try again"), "{unknown}");
        let invalid = Name::new("").map_err(Error::from).unwrap_err();
        assert_eq!(format!("{invalid:?}"), invalid.to_string());
    }
}
