//! The choice of the store, and its opening.

use crate::{
    args::Store,
    exit::Failure,
    people::plain,
    stderr::{self, Volume},
    warnings::AGAIN,
};
use backon::{BackoffBuilder, ExponentialBuilder};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::{
    env,
    ffi::OsString,
    fmt::Display,
    fs::File,
    io::{self, IsTerminal, Read},
    os::unix::fs::PermissionsExt,
    path::{self, Path, PathBuf},
    time::Duration,
};
use tenure::{
    Error, Locks,
    urls::{namespace, schemes, with_password},
};
use tokio::time::{Instant, sleep, timeout_at};

/// Characters that are special or not allowed in a URL.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#').add(b'@');

/// The store's URL in the environment.
pub(crate) const URL: &str = "TENURE_STORE";
/// The name of a file that has it, in the environment.
pub(crate) const FILE: &str = "TENURE_STORE_FILE";

/// Opens the store. Refuses one that no other process shares.
pub(crate) async fn open(given: &Store) -> Result<Locks, Failure> {
    let url = url(given)?;
    shared(url.connect().await?, &url)
}

fn shared(locks: Locks, url: &Url) -> Result<Locks, Failure> {
    if locks.store() == "memory" {
        let text = "memory: keeps locks in this process only, so they exclude no other process; use sqlite:PATH \
                    between processes of one machine, or a server's URL between machines (see tenure help urls)";
        return Err(url.noted(Failure::Usage(text.to_owned())));
    }
    Ok(locks)
}

/// The first and the longest pause before an unavailable store is asked again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How long the last attempt may take, which begins when the wait is over.
const LAST: Duration = Duration::from_secs(1);

/// Opens the store of this URL for a command that holds a lock, or waits for one, for `wait` at most. Refuses a store
/// whose locks exclude no other process.
///
/// While the store is unavailable, asks again until the wait is over. Returns how much of it is left.
pub(crate) async fn open_to_hold(
    url: &Url,
    wait: Option<Duration>,
) -> Result<(Locks, Option<Duration>), Failure> {
    let began = Instant::now();
    let first = tenure::connect(&url.text).await;
    let (opened, left) = match first {
        Err(error) if error.is_retryable() => {
            let opened = open_again(url, began, wait, error).await;
            (opened, wait.map(|wait| wait.saturating_sub(began.elapsed())))
        }
        decided => (decided, wait),
    };
    let locks = shared(opened.map_err(|error| url.failed(error))?, url)?;
    url.mention(&locks);
    Ok((locks, left))
}

/// Asks an unavailable store again, until the wait is over. Then its last error counts.
async fn open_again(
    url: &Url,
    began: Instant,
    wait: Option<Duration>,
    mut error: Error,
) -> Result<Locks, Error> {
    let end = wait.map(|wait| began + wait);
    let limit = wait.map_or("until it answers".to_owned(), |wait| {
        format!("for up to {}", humantime::format_duration(wait))
    });
    let (first, longest) = PAUSES;
    // backon's jitter at most doubles a delay, so this asks for half.
    let growing = ExponentialBuilder::new().with_min_delay(first / 2).with_max_delay(longest / 2);
    let mut pauses = growing.with_jitter().without_max_times().build();
    let mut told = None;
    loop {
        let pause = pauses.next().unwrap_or(longest);
        let left = end.map_or(pause, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(error);
        }
        let (at, why) = match &error {
            Error::Unavailable { store, source, .. } => (&**store, source.to_string()),
            other => ("", other.to_string()),
        };
        if told.as_ref().is_none_or(|(told, at): &(String, Instant)| *told != why || at.elapsed() >= AGAIN) {
            tracing::warn!(lock.store = at, error = %why, "the store is unavailable; trying again {limit}");
            told = Some((why, Instant::now()));
        }
        sleep(pause.min(left)).await;
        let opening = tenure::connect(&url.text);
        let opened = match end {
            Some(end) => match timeout_at(end.max(Instant::now() + LAST), opening).await {
                Ok(opened) => opened,
                Err(_) => return Err(error),
            },
            None => opening.await,
        };
        match opened {
            Err(again) if again.is_retryable() => error = again,
            decided => return decided,
        }
    }
}

/// A store's URL. It may have a password, so it is not shown (`Debug`).
pub(crate) struct Url {
    pub(crate) text: String,
    /// The variable or file that it is from, if it was not given as `--store`.
    place: Option<String>,
    /// The variable that its password is from.
    variable: Option<&'static str>,
}

impl Url {
    pub(crate) async fn connect(&self) -> Result<Locks, Failure> {
        let locks = tenure::connect(&self.text).await.map_err(|error| self.failed(error))?;
        self.mention(&locks);
        Ok(locks)
    }

    /// With `--verbose`, says which locks these are: others of the same server may look alike.
    fn mention(&self, locks: &Locks) {
        if stderr::volume() == Volume::Everything {
            let namespace =
                namespace(&self.text).into_iter().map(|(name, value)| format!("{name} {value:?}"));
            let namespace = namespace.collect::<Vec<_>>().join(", ");
            stderr::say(&format!("using {} ({namespace})", locks.store()));
        }
    }

    /// The failure to open the store. If the URL is invalid, this names the variable or file that has it. If the store
    /// refused a password from a variable, this names the variable, which may be meant for another server.
    pub(crate) fn failed(&self, error: Error) -> Failure {
        match (&error, self.variable) {
            (Error::InvalidUrl { .. }, _) => self.noted(error.into()),
            (Error::Store { .. }, Some(variable)) => {
                let text = format!("the URL has no password, so tenure used the one in {variable}");
                Failure::Noted(Box::new(error.into()), text)
            }
            _ => error.into(),
        }
    }

    /// The failure, with the place of the URL that caused it.
    fn noted(&self, failure: Failure) -> Failure {
        match &self.place {
            Some(place) => Failure::Noted(Box::new(failure), format!("the URL is from {place}")),
            None => failure,
        }
    }
}

/// The store's URL, from the command line, else from the environment, else of this user's file.
///
/// May wait for a pipe's writer. So call this before any signal is caught that may end the wait.
pub(crate) fn url(given: &Store) -> Result<Url, Failure> {
    let named = named(given)?;
    let place = match &named {
        Named::Url(_) if given.url.is_none() => Some(URL.to_owned()),
        Named::File(file) if given.file.is_some() => Some(quoted(file)),
        Named::File(file) => Some(format!("{} (from {FILE})", quoted(file))),
        Named::Url(_) | Named::Nowhere => None,
    };
    let url = match named {
        Named::Url(url) => {
            if given.url.is_some() && has_password(&url) {
                let text = "every user of this machine can see the password in --store; put the URL into a file, and \
                            give that with --store-file or TENURE_STORE_FILE";
                stderr::mention(text);
            }
            url
        }
        Named::File(file) => read(&file, place.as_deref().unwrap_or_default())?,
        Named::Nowhere => {
            let url = default_url(state_directory())?;
            if !io::stderr().is_terminal() {
                // At a terminal there is a person, who knows that the machine is one of many.
                // Also with --quiet: jobs on other machines may overlap.
                stderr::say(&format!(
                    "no store is given, so only your own processes on this machine see these locks; name a shared store \
                     with --store or TENURE_STORE (to use your own file without this warning: TENURE_STORE={})",
                    plain(&url)
                ));
            }
            url
        }
    };
    Ok(Url { place, ..logged_in(url, |variable| env::var_os(variable))? })
}

/// Where the servers' own clients look for a password, by the feature that the store needs. PostgreSQL is missing
/// because its driver reads libpq's variables.
const PASSWORDS: [(&str, &str); 2] = [("mysql", "MYSQL_PWD"), ("redis", "REDISCLI_AUTH")];

/// The URL with the password of its server's variable, if that is set and the URL has none.
fn logged_in(text: String, variable: impl FnOnce(&str) -> Option<OsString>) -> Result<Url, Failure> {
    let name = text.split(':').next().unwrap_or_default();
    let scheme = schemes().into_iter().find(|scheme| scheme.name.eq_ignore_ascii_case(name));
    let of_scheme =
        |(feature, _): &(&str, &str)| scheme.as_ref().is_some_and(|scheme| scheme.feature == *feature);
    let Some((_, name)) = PASSWORDS.into_iter().find(of_scheme) else {
        return Ok(Url { text, place: None, variable: None });
    };
    let password = variable(name).filter(|password| !password.is_empty()).map(OsString::into_string);
    let password = password.transpose().map_err(|_| Failure::Usage(format!("{name} is not UTF-8")))?;
    Ok(match password.and_then(|password| with_password(&text, &password)) {
        Some(text) => Url { text, place: None, variable: Some(name) },
        None => Url { text, place: None, variable: None },
    })
}

/// How the store is named.
enum Named {
    Url(String),
    /// By the file that has its URL.
    File(PathBuf),
    /// So it is this user's file.
    Nowhere,
}

fn named(given: &Store) -> Result<Named, Failure> {
    match given {
        Store { url: Some(url), .. } => Ok(Named::Url(url.clone())),
        Store { file: Some(file), .. } => Ok(Named::File(file.clone())),
        _ => named_in_environment(),
    }
}

/// An empty variable means that no store is given, unless the other variable names one.
fn named_in_environment() -> Result<Named, Failure> {
    let (url, file) = (env::var_os(URL), env::var_os(FILE));
    let which = match (&url, &file) {
        (None, None) => return Ok(Named::Nowhere),
        (Some(_), None) => format!("{URL} is"),
        (None, Some(_)) => format!("{FILE} is"),
        (Some(_), Some(_)) => format!("{URL} and {FILE} are"),
    };
    let set = |value: Option<OsString>| value.filter(|value| !value.is_empty());
    match (set(url), set(file)) {
        (Some(_), Some(_)) => {
            let text = format!("{URL} and {FILE} are both set; unset one, or use --store or --store-file");
            Err(Failure::Usage(text))
        }
        (Some(url), None) => {
            url.into_string().map(Named::Url).map_err(|_| Failure::Usage(format!("{URL} is not UTF-8")))
        }
        (None, Some(file)) => Ok(Named::File(file.into())),
        (None, None) => Err(Failure::Usage(format!(
            "{which} empty. Under `tenure run` or `tenure elect`, add --keep-store to the outer command. Otherwise, give \
             --store or --store-file, or unset {URL} and {FILE} to use your own SQLite file"
        ))),
    }
}

/// The variables of a command's environment that are set or, without a value, unset.
pub(crate) type Variables = Vec<(&'static str, Option<OsString>)>;

/// The variables that name the store for a command under `tenure`. Unless it keeps the store, both are empty: if they
/// were unset, a `tenure` in the command would use this user's file, and exclude no client of the store.
pub(crate) fn for_command(given: &Store, keeps: bool) -> Result<Variables, Failure> {
    let (url, file) = match named(given)? {
        Named::Nowhere => return Ok(Vec::new()),
        _ if !keeps => (Some(OsString::new()), Some(OsString::new())),
        Named::Url(url) => (Some(url.into()), None),
        // The command may change its directory. If this process has none, the path cannot have been relative.
        Named::File(file) => (None, Some(path::absolute(&file).unwrap_or(file).into())),
    };
    Ok(vec![(URL, url), (FILE, file)])
}

/// Reads a URL from a file, which may also be a pipe. Containers mount their secrets readable by all, so a file that
/// others can read gets a warning, and only with a password in it.
fn read(path: &Path, place: &str) -> Result<String, Failure> {
    let refused = |why: &dyn Display| Failure::Usage(format!("cannot read the URL from {place}: {why}"));
    let mut file = File::open(path).map_err(|error| refused(&error))?;
    let mode = file.metadata().map_err(|error| refused(&error))?.permissions().mode();
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| refused(&error))?;
    let url = text.trim();
    if url.is_empty() {
        return Err(refused(&"it is empty; write the URL into it, and nothing else"));
    }
    if url.contains('\n') {
        return Err(refused(&"it has several lines; write the URL into it, and nothing else"));
    }
    if mode & READ_BY_OTHERS != 0 && has_password(url) {
        let file = quoted(path);
        stderr::mention(&format!(
            "every user of this machine can read the password in {file}; run: chmod o-r {file}"
        ));
    }
    Ok(url.to_owned())
}

/// The bit in a file's mode.
const READ_BY_OTHERS: u32 = 0o004;

/// A path in a message.
pub(crate) fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_string_lossy())
}

/// Whether a URL has a password, in front of its hosts. Its parameters may contain anything.
fn has_password(url: &str) -> bool {
    let place = url.split('?').next().unwrap_or_default();
    let hosts = place.split_once("://").map_or("", |(_, rest)| rest);
    !hosts.starts_with('/') && hosts.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
}

fn default_url(state: Option<PathBuf>) -> Result<String, Failure> {
    let file = state.map(|state| state.join("tenure/locks.db"));
    let Some(path) = file.as_deref().and_then(Path::to_str) else {
        let text = "no store is given: use --store URL or --store-file FILE, set TENURE_STORE, or set HOME to an absolute path in UTF-8";
        return Err(Failure::Usage(text.to_owned()));
    };
    Ok(format!("sqlite:{}?create_directory=true", utf8_percent_encode(path, ENCODED)))
}

/// The [XDG base directory](https://specifications.freedesktop.org/basedir-spec/latest/) for a program's state. It says
/// to ignore relative paths in the environment.
fn state_directory() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_found_in_login_only() {
        for url in ["redis://:secret@h", "mysql://a:se/cr@et@h/db?lease=5s", "redlock://u:p@a,b,c"] {
            assert!(has_password(url), "{url}");
        }
        let without =
            ["redis://h:6379/", "sqlite:a:b@c", "sqlite:///a:b@c", "zookeeper://a,b:2181/x", "memory:"];
        for url in without.into_iter().chain(["redis://h:6379/?prefix=x@y", "redis://h:6379?prefix=x:y@z"]) {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn missing_password_comes_from_client_variable() {
        let given = |variable: &str| match variable {
            "REDISCLI_AUTH" => Some("re:dis".into()),
            "MYSQL_PWD" => Some("my sql".into()),
            _ => panic!("{variable} must not be read"),
        };
        for (url, with) in [
            ("redis://h:1/2?lease=5s", "redis://:re%3Adis@h:1/2?lease=5s"),
            ("REDISS+sentinel://me@a,b/s", "REDISS+sentinel://me:re%3Adis@a,b/s"),
            ("redlock://a,b,c", "redlock://:re%3Adis@a,b,c"),
            ("mysql://me@h/db", "mysql://me:my%20sql@h/db"),
            ("mariadb://h/db", "mariadb://:my%20sql@h/db"),
            ("redis://:own@h", "redis://:own@h"),
            ("redis://me@h?password_file=p", "redis://me@h?password_file=p"),
            ("redis+unix:/run/redis.sock", "redis+unix:/run/redis.sock"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
            ("redis+unix:///run/me@redis.sock", "redis+unix:///run/me@redis.sock"),
            ("mysql:///app", "mysql:///app"),
            ("postgres://me@h/db", "postgres://me@h/db"),
            ("zookeeper://me@h", "zookeeper://me@h"),
            ("sqlite:x", "sqlite:x"),
            ("memory", "memory"),
        ] {
            let done = logged_in(url.to_owned(), given).unwrap();
            assert_eq!((&*done.text, done.variable.is_some()), (with, url != with));
        }
        for unset in [None, Some(OsString::new())] {
            let done = logged_in("redis://h".to_owned(), |_| unset).unwrap();
            assert_eq!((&*done.text, done.variable), ("redis://h", None));
        }
    }
}
