//! A store's URL, taken apart strictly: whatever is not understood is refused, and nothing secret is repeated.

use crate::{
    options::Options,
    urls::{PARAMETERS, Parameter, Read, SCHEMES, Scheme},
};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use tenure_core::Error;

/// A URL that `connect` understands.
#[derive(Debug, PartialEq)]
pub(crate) struct StoreUrl {
    pub(crate) target: Target,
    pub(crate) options: Options,
}

/// Where the locks live.
#[derive(Debug, PartialEq)]
pub(crate) enum Target {
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    /// The URL without its parameters, which may hold a password.
    #[cfg(feature = "redis")]
    Redis(String),
    /// The same.
    #[cfg(feature = "redis")]
    Redlock(String),
    /// The same.
    #[cfg(feature = "postgres")]
    Postgres(String),
    /// The same.
    #[cfg(feature = "mysql")]
    Mysql(String),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Ensemble),
}

/// The servers of a `ZooKeeper` ensemble, and who asks.
#[cfg(feature = "zookeeper")]
#[derive(PartialEq)]
pub(crate) struct Ensemble {
    pub(crate) hosts: Vec<String>,
    pub(crate) chroot: String,
    pub(crate) login: Option<(String, String)>,
    pub(crate) encrypted: bool,
}

#[cfg(feature = "zookeeper")]
impl std::fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ensemble").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// What is wrong, and what would be valid.
struct Refusal {
    problem: String,
    valid: String,
}

fn refuse<T>(problem: impl Into<String>, valid: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { problem: problem.into(), valid: valid.into() })
}

impl StoreUrl {
    /// Takes `url` apart. Asks nothing of the system or the network.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        parse(url).map_err(|Refusal { problem, valid }| Error::InvalidUrl { url: shown(url), problem, valid })
    }
}

fn parse(url: &str) -> Result<StoreUrl, Refusal> {
    let Some((name, rest)) = url.split_once(':') else {
        return refuse("it has no scheme", format!("valid are {}", forms()));
    };
    let Some(scheme) = scheme(name) else {
        return refuse("its scheme is unknown", format!("valid are {}", forms()));
    };
    must_be_built_in(scheme)?;
    if url.chars().any(char::is_control) {
        return refuse("it has a control character", format!("write {}", scheme.form));
    }
    if rest.contains('#') {
        return refuse("it has a fragment", "write %23 where # is meant");
    }
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    // A password with a bare ? in it would come apart here, and its second half be taken for parameters and repeated.
    if query.is_some_and(|query| query.contains('@')) {
        return refuse(
            "it has an @ among its parameters",
            "write %40 where @ is meant, and %3F for ? before it",
        );
    }
    // The place first: where it is wrong, what follows may be the rest of a password and not parameters.
    let target = target(scheme, place)?;
    let options = options(scheme, query)?;
    Ok(StoreUrl { target, options })
}

fn must_be_built_in(scheme: &Scheme) -> Result<(), Refusal> {
    if scheme.built_in {
        return Ok(());
    }
    let problem = format!(
        "the feature {:?} of tenure, which {}: URLs need, is not built into this program",
        scheme.feature, scheme.name
    );
    refuse(problem, format!("built in are {}", forms()))
}

fn target(scheme: &Scheme, place: &str) -> Result<Target, Refusal> {
    ports_are_numbers(scheme, place)?;
    Ok(match scheme.name {
        "memory" if place.is_empty() => Target::Memory,
        "memory" => return refuse("memory has no path and no host", "write memory:"),
        #[cfg(feature = "sqlite")]
        "sqlite" => Target::Sqlite(sqlite_path(place)?),
        #[cfg(feature = "redis")]
        "redis+unix" if has_host(place) => {
            return refuse("a Unix socket has no host", "write redis+unix:/PATH");
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" => Target::Redis(format!("{}:{place}", scheme.name)),
        #[cfg(feature = "redis")]
        "redlock" | "rediss+redlock" => Target::Redlock(format!("{}:{place}", scheme.name)),
        #[cfg(feature = "postgres")]
        "postgres" => Target::Postgres(format!("{}:{place}", scheme.name)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Target::Mysql(format!("{}:{place}", scheme.name)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" | "zookeeper+tls" => Target::Zookeeper(ensemble(place, scheme)?),
        name => unreachable!("{name} is not built in"),
    })
}

/// Of `//user:first?second`, what stands before the `?` looks like a host and its port.
fn ports_are_numbers(scheme: &Scheme, place: &str) -> Result<(), Refusal> {
    let Some(place) = place.strip_prefix("//").filter(|_| scheme.form.contains("://")) else {
        return Ok(());
    };
    let authority = place.split('/').next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    for host in hosts.split(',') {
        // The colons within [::1] are none of a port's.
        let name = host.rfind(']').map_or(0, |bracket| bracket + 1);
        let port = host[name..].split_once(':').map_or("", |(_, port)| port);
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return refuse(
                "a port in it is not a number",
                format!("write {}, with %XX in a password", scheme.form),
            );
        }
    }
    Ok(())
}

fn scheme(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.name.eq_ignore_ascii_case(name))
}

fn forms() -> String {
    let built_in = SCHEMES.iter().filter(|scheme| scheme.built_in).map(|scheme| scheme.form);
    Some(list(built_in)).filter(|forms| !forms.is_empty()).unwrap_or_else(|| "none".to_owned())
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

fn options(scheme: &Scheme, query: Option<&str>) -> Result<Options, Refusal> {
    let mut options = Options::default();
    let mut given: Vec<&str> = Vec::new();
    for pair in query.map(|query| query.split('&')).into_iter().flatten() {
        let (name, value) = pair.split_once('=').map_or((pair, None), |(name, value)| (name, Some(value)));
        let Some(parameter) = parameter(scheme, name) else {
            let name = if is_word(name) { format!("{name:?}") } else { "that is not a word".to_owned() };
            return refuse(format!("unknown parameter {name}"), valid_parameters(scheme));
        };
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return refuse(format!("parameter {name} has no value"), explain(parameter));
        };
        if given.contains(&name) {
            return refuse(format!("parameter {name} is given twice"), "give it once");
        }
        given.push(name);
        let value = decode(value)?;
        let is_one = match parameter.read {
            Read::Here(read) => read(&mut options, &value),
            Read::Driver(values) => {
                options.driver.push((parameter.name, value.to_string()));
                values.is_empty() || values.contains(&&*value)
            }
        };
        if !is_one {
            let value: String = value.chars().take(40).collect();
            return refuse(format!("{value:?} is no value for {name}"), explain(parameter));
        }
    }
    Ok(options)
}

fn parameter(scheme: &Scheme, name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|parameter| parameter.name == name && parameter.is_for(scheme.feature))
}

fn valid_parameters(scheme: &Scheme) -> String {
    let names = PARAMETERS.iter().filter(|parameter| parameter.is_for(scheme.feature));
    format!("valid ones for {}: {}", scheme.name, list(names.map(|parameter| parameter.name)))
}

fn explain(parameter: &Parameter) -> String {
    format!("{} is {}", parameter.name, parameter.takes)
}

fn is_word(text: &str) -> bool {
    (1..=40).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c))
}

#[cfg(feature = "sqlite")]
fn sqlite_path(place: &str) -> Result<PathBuf, Refusal> {
    const FORMS: &str =
        "write sqlite:locks.db, sqlite:/var/lib/app/locks.db or sqlite:///var/lib/app/locks.db";
    let path = match place.strip_prefix("//") {
        None => place,
        Some(path) if path.starts_with('/') => path,
        Some(_) => return refuse("a SQLite file has no host", FORMS),
    };
    let path = decode(path)?;
    if path.is_empty() {
        refuse("it has no path", FORMS)
    } else if path == ":memory:" {
        refuse("a SQLite database in memory cannot be shared", "write memory: for locks in memory")
    } else if path == "~" || path.starts_with("~/") {
        refuse("~ is not expanded", "write the home directory out, or ./~ for a directory of that name")
    } else if path.chars().any(char::is_control) {
        refuse("its path has a control character", FORMS)
    } else {
        Ok(PathBuf::from(path.as_ref()))
    }
}

#[cfg(feature = "zookeeper")]
fn ensemble(place: &str, scheme: &Scheme) -> Result<Ensemble, Refusal> {
    let form = scheme.form;
    let Some(place) = place.strip_prefix("//") else {
        return refuse("it names no server", format!("write {form}"));
    };
    let (login, place) = place.rsplit_once('@').map_or((None, place), |(login, place)| (Some(login), place));
    let login = match login.map(|login| login.split_once(':')) {
        None => None,
        Some(Some((user, password))) => Some((decode(user)?.into_owned(), decode(password)?.into_owned())),
        Some(None) => return refuse("it has a user without a password", format!("write {form}")),
    };
    let (hosts, chroot) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    if hosts.iter().any(String::is_empty) {
        return refuse("one of its servers has no name", format!("write {form}"));
    }
    let chroot = decode(chroot.strip_suffix('/').unwrap_or(chroot))?.into_owned();
    Ok(Ensemble { hosts, chroot, login, encrypted: scheme.name == "zookeeper+tls" })
}

/// Decodes `%XX`, strictly.
fn decode(text: &str) -> Result<Cow<'_, str>, Refusal> {
    let mut escapes = text.split('%').skip(1);
    if !escapes.all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|b| b.is_ascii_hexdigit())) {
        return refuse("% is not followed by two hexadecimal digits", "write %25 where % is meant");
    }
    percent_decode_str(text).decode_utf8().or_else(|_| {
        refuse(
            "what it encodes with % is not UTF-8",
            "encode text as UTF-8 before its bytes are written as %XX",
        )
    })
}

/// As much of a refused URL as is safe to repeat: no user, no password, no parameters.
///
/// Of a URL with a host only the scheme, since whatever is wrong with it may be that a password spoilt its structure.
fn shown(url: &str) -> String {
    let safe = match url.split_once(':') {
        None if url.contains('@') => "…".into(),
        None => url.split(['?', '#']).next().unwrap_or_default().into(),
        Some((name, rest)) => match scheme(name) {
            Some(scheme) if scheme.name == "sqlite" && !has_host(rest) => {
                let place = rest.split(['?', '#']).next().unwrap_or_default();
                format!("{name}:{place}")
            }
            Some(_) => format!("{name}:…"),
            // In `word:word@host` even the first word may be a password.
            None if is_word(name) && !rest.contains('@') => format!("{name}:…"),
            None if is_word(name) && rest.starts_with("//") => format!("{name}:…"),
            None => "…".into(),
        },
    };
    let mut cut: String = safe.chars().take(300).collect();
    if cut.len() < safe.len() {
        cut.push('…');
    }
    cut
}

fn has_host(rest: &str) -> bool {
    rest.strip_prefix("//").is_some_and(|rest| !rest.starts_with('/'))
}

#[cfg(all(test, feature = "memory", feature = "sqlite"))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn refusal(url: &str) -> String {
        StoreUrl::parse(url).expect_err(url).to_string()
    }

    #[test]
    fn paths() {
        let path = |url| match StoreUrl::parse(url).unwrap().target {
            Target::Sqlite(path) => path.to_str().unwrap().to_owned(),
            other => panic!("{url} is no file but {other:?}"),
        };
        assert_eq!(path("sqlite:locks.db"), "locks.db");
        assert_eq!(path("SQLite:locks.db"), "locks.db");
        assert_eq!(path("sqlite:a/../locks.db"), "a/../locks.db");
        assert_eq!(path("sqlite:/var/x.db"), "/var/x.db");
        assert_eq!(path("sqlite:///var/x.db"), "/var/x.db");
        assert_eq!(path("sqlite:./~"), "./~");
        assert_eq!(path("sqlite:a%20b%3F%23%25+@é.db?lease=5s"), "a b?#%+@é.db");
    }

    #[test]
    fn parameters_are_read_into_their_types() {
        let options = StoreUrl::parse("memory:?lease=1m%2030s&prefix=a%26b+c").unwrap().options;
        assert_eq!(options.lease, Some(Duration::from_secs(90)));
        assert_eq!(options.prefix.as_deref(), Some("a&b+c"));
    }

    #[test]
    fn refusals_say_what_is_wrong_and_what_would_be_valid() {
        let refused = [
            "",
            "locks.db",
            "ftp://host/x",
            "memory:x",
            "memory://host",
            "memory:?",
            "memory:#x",
            "memory:?tabel=x",
            "memory:?lease",
            "memory:?lease=",
            "memory:?lease=5s&lease=5s",
            "memory:?lease=5s&",
            "memory:?lease=0s",
            "memory:?lease=-5s",
            "memory:?lease=90",
            "memory:?lease=366days",
            "memory:?lease=99999999999999999999years",
            "memory:?prefix=%zz",
            "memory:?prefix=%f",
            "memory:?prefix=%ff",
            "memory:?prefix=a@b",
            "memory:?prefix=a%0Ab",
            "memory:?a b\u{7}=x",
            "sqlite:",
            "sqlite:?lease=5s",
            "sqlite://locks.db",
            "sqlite://user:secret@host/locks.db",
            "sqlite::memory:",
            "sqlite:~/locks.db",
            "sqlite:a%00b",
            "sqlite:two\nlines",
        ];
        // Which forms are valid depends on the features.
        let line = |url: &&str| refusal(url).replace(&forms(), "FORMS");
        let lines: Vec<String> = refused.iter().map(line).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    /// The tests are built with every feature, so that what is off has to be made.
    #[test]
    fn a_scheme_that_is_not_built_in_is_refused_by_its_feature() {
        for scheme in SCHEMES {
            let Err(Refusal { problem, valid }) = must_be_built_in(&Scheme { built_in: false, ..*scheme })
            else {
                panic!("{} is not refused", scheme.name)
            };
            for named in [scheme.name, scheme.feature, "is not built into this program"] {
                assert!(problem.contains(named), "{}: {problem}", scheme.name);
            }
            assert_eq!(valid, format!("built in are {}", forms()));
            assert!(!scheme.built_in || must_be_built_in(scheme).is_ok(), "{}", scheme.name);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_without_a_panic(url in ".{0,40}") {
            let _ = StoreUrl::parse(&url);
        }

        #[test]
        fn any_text_after_a_scheme_is_refused_without_a_panic(rest in "[%0-9a-f&=?@/#:~é]{0,40}") {
            for scheme in SCHEMES {
                let _ = StoreUrl::parse(&format!("{}:{rest}", scheme.name));
            }
        }

        /// A password in any place where one may stand, whole or cut up by characters that should have been encoded.
        #[test]
        fn a_password_is_never_repeated(
            parts in prop::collection::vec("zq[a-z0-9]{6}", 1..4),
            between in prop::sample::select(vec![":", "/", "?", "#", "@", "&", "=", "%", "%zz", ";", " ", "é", "//"]),
            form in prop::sample::select(vec![
                "SCHEME://user:PASSWORD@host/x", "SCHEME://:PASSWORD@host", "SCHEME://PASSWORD@host:1",
                "SCHEME://user:PASSWORD", "SCHEME:user:PASSWORD@host", "SCHEME//user:PASSWORD@host",
                "user:PASSWORD@host", ":PASSWORD@host", "PASSWORD@host",
                "SCHEME://host/?password=PASSWORD", "SCHEME:x?password=PASSWORD", "SCHEME:?lease=5s&password=PASSWORD",
                "SCHEME://user:PASSWORD@host/x?lease=5s", "SCHEME://user:PASSWORD@host/x?lease=0s",
            ]),
            scheme in prop::sample::select(SCHEMES.iter().map(|s| s.name).chain(["amqp", "https"]).collect::<Vec<_>>()),
        ) {
            // That is the path of a file, and paths are shown.
            prop_assume!(!(scheme == "sqlite" && form.starts_with("SCHEME:user")));
            let password = parts.join(between);
            let url = form.replace("SCHEME", scheme).replace("PASSWORD", &password);
            // Where the URL is a good one, the store's own options take the password.
            let said = StoreUrl::parse(&url).err().map(|error| format!("{error} {error:?}")).unwrap_or_default();
            for part in &parts {
                prop_assert!(!said.contains(part), "{}: {}", url, said);
            }
        }
    }
}
