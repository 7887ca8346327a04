//! URLs that name a store and its options: for authors of stores.
//!
//! A URL is `scheme:place?name=value&name=value`. A store lists its own schemes and parameters in its [`Urls`], and
//! reads the place. The rest is the same for every store, and done here: anything unknown is refused with what would be
//! valid, `%XX` is decoded, and neither passwords nor unknown parameters are repeated. [`options!`](crate::options!)
//! makes parameters from a table of options, and has an example.
//!
//! # Reading the code
//!
//! Each layer uses only those below it.
//!
//! | layer | files of `url` |
//! |---|---|
//! | the parameters, and what stands before them | `parameter`, `place` |
//! | the password, in the URL or in a file | `password` |
//! | `%XX` | `encoding` |
//! | why a URL is refused | `refusal` |
//! | the scheme | `scheme` |
//! | the known word that a misspelt one stands for | `nearest` |

mod encoding;
mod nearest;
mod parameter;
mod password;
mod place;
mod refusal;
mod scheme;

pub use encoding::{decode, encode};
pub use parameter::{Entry, Parameter};
pub use place::{Place, Servers};
pub use refusal::Refusal;
pub use scheme::{Scheme, scheme_names};

use crate::contract::{Claim, Error, lease};
use nearest::nearest;
use std::time::Duration;

/// One of the two parameters that every store's URLs have. Both are for the locks above the store.
const LEASE: Parameter<Duration> =
    Parameter::duration("lease", lease::MIN_LEASE..=lease::MAX_LEASE, "30s", |_, lease| lease).about(
        "how long the store keeps a lock for a silent holder; ZooKeeper and etcd use session_timeout instead",
    );

/// The other one of the two.
const SUCCESSION: Parameter<u32> =
    Parameter::number("succession", Claim::RESERVE_RANGE, "0", |_, count| count)
        .about("how many times in a row a process may hand a lock on to its own waiters before others get it; some stores take only 0");

/// The URLs of a store, which are read into its options, of type `O`.
pub struct Urls<O: 'static> {
    /// The schemes, of which the first is the store's name in documentation.
    pub schemes: &'static [Scheme],
    /// The parameters, in one or more tables. `lease` and `succession` are added to them.
    pub parameters: &'static [&'static [Parameter<O>]],
}

/// A description of a store's URLs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Guide {
    /// The schemes.
    pub schemes: &'static [Scheme],
    /// The parameters; those that every store has come first.
    pub parameters: Vec<Entry>,
}

impl<O> Urls<O> {
    /// Reads `url`: `begin` makes options of its place, and each parameter changes them.
    ///
    /// The place is read first: if it is wrong, what follows may be the rest of a password instead of parameters.
    /// `lease` and `succession` are checked, but have no effect on the options; see [`lease`](lease()) and
    /// [`succession`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`], which says what is wrong and what would be valid.
    pub fn read(&self, url: &str, begin: impl FnOnce(Place<'_>) -> Result<O, Refusal>) -> Result<O, Error> {
        let scheme = scheme(url, self.schemes)?;
        self.read_as(scheme, url, begin).map_err(|refusal| refusal.of(url, Some(scheme)))
    }

    fn read_as(
        &self,
        scheme: &'static Scheme,
        url: &str,
        begin: impl FnOnce(Place<'_>) -> Result<O, Refusal>,
    ) -> Result<O, Refusal> {
        if url.chars().any(char::is_control) {
            return Err(Refusal::new("control character in the URL", format!("write {}", scheme.form)));
        }
        if url.contains('#') {
            return Err(Refusal::new("fragments are not supported", "write # as %23"));
        }
        // A bare ? in a password splits it here, and its second half would be taken for parameters and repeated.
        if query(url).is_some_and(|query| query.contains('@')) {
            let valid = "write @ as %40, and a ? before it as %3F";
            return Err(Refusal::new("@ in the parameters", valid));
        }
        let place = Place::of(scheme, url)?;
        // Otherwise the file would be called so, and the store would have no parameters.
        let is_known = |name: &str| self.guide().parameters.iter().any(|known| known.name == name);
        let begins = |rest: &str| rest.split_once('=').is_some_and(|(name, _)| is_known(name));
        if place.text().split('&').skip(1).any(begins) {
            return Err(Refusal::new("& where the parameters begin", "write ? there, and & between them"));
        }
        // Where no host can be, what follows one may be the rest of a password, and name no file.
        let is_sound = scheme.has_servers() || place.path().is_some();
        let file = self.password_file(url).filter(|_| is_sound);
        let password = file.map(|file| place.read_password(file)).transpose()?;
        let mut options = begin(match &password {
            Some(password) => place.with_password(password),
            None => place,
        })?;
        let mut given: Vec<&str> = Vec::new();
        for (name, value) in pairs(url) {
            options = match self.own().find(|parameter| parameter.name() == name) {
                Some(parameter) => parameter.read(options, value)?,
                None if name == LEASE.name() => LEASE.read(lease::DEFAULT_LEASE, value).map(|_| options)?,
                None if name == SUCCESSION.name() => SUCCESSION.read(0, value).map(|_| options)?,
                None => return Err(self.unknown(name, scheme)),
            };
            if given.contains(&name) {
                return Err(Refusal::new(format!("duplicate parameter {name}"), "give it once"));
            }
            given.push(name);
        }
        Ok(options)
    }

    /// The file that the URL names for the password, not yet decoded.
    fn password_file<'a>(&self, url: &'a str) -> Option<&'a str> {
        let has_file = self.own().any(|parameter| parameter.name() == password::FILE);
        let file = pairs(url).find(|(name, value)| has_file && *name == password::FILE && !value.is_empty());
        file.map(|(_, file)| file)
    }

    fn own(&self) -> impl Iterator<Item = &'static Parameter<O>> {
        self.parameters.iter().copied().flatten()
    }

    fn unknown(&self, name: &str, scheme: &Scheme) -> Refusal {
        let known: Vec<&str> = self.guide().parameters.iter().map(|parameter| parameter.name).collect();
        let valid = match nearest(name, known.iter().map(|known| (*known, known))) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("known for {}: {}", scheme.name(), known.join(", ")),
        };
        if name.is_empty() {
            return Refusal::new("empty parameter", "remove the ? or & before it");
        }
        let name = if scheme::is_word(name) { format!(" {name:?}") } else { String::new() };
        Refusal::new(format!("unknown parameter{name}"), valid)
    }

    /// Describes the URLs, for documentation.
    #[must_use]
    pub fn guide(&self) -> Guide {
        let own = self.own().map(Parameter::entry);
        let common = [LEASE.entry(), SUCCESSION.entry()];
        Guide { schemes: self.schemes, parameters: common.into_iter().chain(own).collect() }
    }
}

/// Finds the scheme of `url` among these, in upper or lower case.
///
/// # Errors
///
/// [`Error::InvalidUrl`] for an unknown or missing scheme, with the one that was probably meant, or the names of all.
pub fn scheme(url: &str, known: impl IntoIterator<Item = &'static Scheme>) -> Result<&'static Scheme, Error> {
    let known: Vec<&'static Scheme> = known.into_iter().collect();
    let names = || format!("known: {}", scheme::scheme_names(known.iter().copied()));
    let did_you_mean = |text: &str| format!("did you mean {text:?}?");
    let near = |word: &str| {
        let word = scheme::usual_name(word);
        nearest(word, known.iter().map(|scheme| (scheme.name(), *scheme)))
    };
    let Some((name, rest)) = url.split_once(':') else {
        let valid = match scheme::of_path(url, &known) {
            Some(meant) => did_you_mean(&meant),
            None => near(url).map_or_else(names, |scheme| format!("write {}", scheme.form)),
        };
        return Err(Refusal::new("missing scheme", valid).of(url, None));
    };
    if let Some(scheme) = known.iter().copied().find(|scheme| scheme.name().eq_ignore_ascii_case(name)) {
        return Ok(scheme);
    }
    let bare = name.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
    if bare != name && known.iter().any(|scheme| scheme.name().eq_ignore_ascii_case(bare)) {
        return Err(Refusal::new("space or quote before the scheme", "remove it").of(url, None));
    }
    // To say which scheme is near would tell half of a password.
    let is_safe = !scheme::may_be_login(rest);
    if let Some(meant) = scheme::by_port(name, rest, &known).filter(|_| is_safe) {
        return Err(Refusal::new("missing scheme", did_you_mean(&meant)).of(url, None));
    }
    let valid = near(name).filter(|_| is_safe).map_or_else(names, |scheme| did_you_mean(scheme.name()));
    let name = if is_safe && scheme::is_word(name) { format!(" {name:?}") } else { String::new() };
    Err(Refusal::new(format!("unknown scheme{name}"), valid).of(url, None))
}

/// Reads the lease from `url`, for [`Locks::with_lease`](crate::Locks::with_lease). Default:
/// [`DEFAULT_LEASE`](lease::DEFAULT_LEASE).
///
/// # Errors
///
/// [`Error::InvalidUrl`] for an invalid lease. [`Urls::read`] refuses such a URL too.
pub fn lease(url: &str) -> Result<Duration, Error> {
    let given = pairs(url).find(|(name, _)| *name == LEASE.name());
    given.map_or(Ok(lease::DEFAULT_LEASE), |(_, value)| {
        LEASE.read(lease::DEFAULT_LEASE, value).map_err(|refusal| refusal.of(url, None))
    })
}

/// Reads from `url` how many successors a hold may have, for
/// [`Locks::with_succession`](crate::Locks::with_succession). Default: 0.
///
/// # Errors
///
/// [`Error::InvalidUrl`] for an invalid number. [`Urls::read`] refuses such a URL too.
pub fn succession(url: &str) -> Result<u32, Error> {
    let given = pairs(url).find(|(name, _)| *name == SUCCESSION.name());
    given.map_or(Ok(0), |(_, value)| SUCCESSION.read(0, value).map_err(|refusal| refusal.of(url, None)))
}

/// Puts a password from elsewhere, such as a vault, into `url`. `None` if the URL names no host, or has a password or a
/// [file](Parameter::password_file) with one.
///
/// # Examples
///
/// ```
/// use tenure_core::url::with_password;
///
/// let url = with_password("redis://app@cache:6380/2?lease=5s", "50%");
/// assert_eq!(url.as_deref(), Some("redis://app:50%25@cache:6380/2?lease=5s"));
/// assert_eq!(with_password("redis://app:secret@cache", "50%"), None);
/// assert_eq!(with_password("redis://app@cache?password_file=secret", "50%"), None);
/// assert_eq!(with_password("sqlite:///srv/locks.db", "50%"), None);
/// ```
#[must_use]
pub fn with_password(url: &str, password: &str) -> Option<String> {
    if pairs(url).any(|(name, _)| name == password::FILE) {
        return None;
    }
    let (scheme, rest) = url.split_once(':')?;
    let (text, query) = rest.find('?').map_or((rest, ""), |at| rest.split_at(at));
    Some(format!("{scheme}:{}{query}", password::put_into(text, password)?))
}

fn query(url: &str) -> Option<&str> {
    url.split_once('?').map(|(_, query)| query)
}

/// The parameters as written. One without a value gets an empty one.
fn pairs(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query(url).map(|query| query.split('&')).into_iter().flatten();
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}
