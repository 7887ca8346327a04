//! Strict parsing of URLs.

use super::address::Address;
use percent_encoding::percent_decode_str;
use tenure_core::Error;

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26_379;

/// Which server, or how to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server(Address),
    /// `tls` applies to the sentinels and the master.
    Sentinel {
        sentinels: Vec<Address>,
        service: String,
        tls: bool,
    },
    /// Some of the nodes; `tls` applies to all.
    Cluster {
        seeds: Vec<Address>,
        tls: bool,
    },
}

/// What to connect to, and as whom.
pub(crate) struct ParsedUrl {
    pub(crate) target: Target,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

/// What is wrong with a URL, and what would be valid.
type UrlProblem = (&'static str, &'static str);

/// The problem with `rediss` in a build without TLS.
const NO_TLS: UrlProblem =
    ("TLS is not built into this program", "build with the feature \"tls\" of tenure-redis");

const NETWORK: &str = "write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]";
const SENTINEL: &str = "write redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/SERVICE[/DATABASE]";
const CLUSTER: &str = "write redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]";
const SOCKET: &str = "write redis+unix:/run/redis/redis.sock";

pub(crate) fn parse(url: &str) -> Result<ParsedUrl, Error> {
    read(url).map_err(|(problem, valid)| {
        // Nothing after the scheme is repeated: a password may have broken the structure.
        let scheme =
            url.split(':').next().filter(|word| word.chars().all(|c| c.is_ascii_alphabetic() || c == '+'));
        let url = scheme.map_or_else(|| "…".to_owned(), |scheme| format!("{scheme}:…"));
        Error::InvalidUrl { url, problem: problem.to_owned(), valid: valid.to_owned() }
    })
}

fn read(url: &str) -> Result<ParsedUrl, UrlProblem> {
    let Some((scheme, rest)) = url.split_once(':') else { return Err(("it has no scheme", NETWORK)) };
    if rest.contains(['?', '#']) {
        return Err(("it has parameters or a fragment", "write %3F and %23 where ? and # are meant"));
    }
    let scheme = scheme.to_ascii_lowercase();
    let tls = scheme.starts_with("rediss");
    match scheme.as_str() {
        "rediss" | "rediss+sentinel" | "rediss+cluster" if !cfg!(feature = "tls") => Err(NO_TLS),
        "redis" | "rediss" => network(rest, tls),
        "redis+unix" => socket(rest),
        "redis+sentinel" | "rediss+sentinel" => sentinel(rest, tls),
        "redis+cluster" | "rediss+cluster" => cluster(rest, tls),
        _ => Err((
            "its scheme is unknown",
            "valid are redis:, redis+sentinel: and redis+cluster:, the same with rediss for TLS, and redis+unix:",
        )),
    }
}

fn network(rest: &str, tls: bool) -> Result<ParsedUrl, UrlProblem> {
    let Parts { login, hosts, path } = parts(rest, NETWORK)?;
    let (host, port) = host_and_port(hosts, DEFAULT_PORT)?;
    let target = Target::Server(Address::Network { host, port, tls });
    logged_in(target, login, database(path, NETWORK)?)
}

fn sentinel(rest: &str, tls: bool) -> Result<ParsedUrl, UrlProblem> {
    let Parts { login, hosts, path } = parts(rest, SENTINEL)?;
    let sentinels = several(hosts, tls, DEFAULT_SENTINEL_PORT, SENTINEL)?;
    let (service, number) = path.split_once('/').unwrap_or((path, ""));
    let service = decode(service)?;
    if service.is_empty() {
        return Err(("it names no service", SENTINEL));
    }
    logged_in(Target::Sentinel { sentinels, service, tls }, login, database(number, SENTINEL)?)
}

fn cluster(rest: &str, tls: bool) -> Result<ParsedUrl, UrlProblem> {
    let Parts { login, hosts, path } = parts(rest, CLUSTER)?;
    if !path.is_empty() {
        return Err(("a Cluster has no databases", CLUSTER));
    }
    let seeds = several(hosts, tls, DEFAULT_PORT, CLUSTER)?;
    logged_in(Target::Cluster { seeds, tls }, login, 0)
}

fn several(hosts: &str, tls: bool, default: u16, form: &'static str) -> Result<Vec<Address>, UrlProblem> {
    let address = |host| {
        let (host, port) = host_and_port(host, default).map_err(|(problem, _)| (problem, form))?;
        Ok(Address::Network { host, port, tls })
    };
    hosts.split(',').map(address).collect()
}

/// The parts after `//`.
struct Parts<'a> {
    login: Option<&'a str>,
    hosts: &'a str,
    /// Without the first `/`.
    path: &'a str,
}

fn parts<'a>(rest: &'a str, form: &'static str) -> Result<Parts<'a>, UrlProblem> {
    let Some(rest) = rest.strip_prefix("//") else { return Err(("it has no host", form)) };
    let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    Ok(Parts { login, hosts, path })
}

fn database(number: &str, form: &'static str) -> Result<u32, UrlProblem> {
    if number.is_empty() {
        return Ok(0);
    }
    let digits = Some(number).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(("its database is not a number", form))
}

fn logged_in(target: Target, login: Option<&str>, database: u32) -> Result<ParsedUrl, UrlProblem> {
    let (user, password) = match login.map(|login| login.split_once(':')) {
        None => (None, None),
        Some(None) => return Err(("it has a user without a password", "write redis://USER:PASSWORD@HOST")),
        Some(Some(("", password))) => (None, Some(decode(password)?)),
        Some(Some((user, password))) => (Some(decode(user)?), Some(decode(password)?)),
    };
    Ok(ParsedUrl { target, user, password, database })
}

fn host_and_port(text: &str, default: u16) -> Result<(String, u16), UrlProblem> {
    const WRONG: UrlProblem = ("its host is invalid", NETWORK);
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(WRONG)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| WRONG)?;
            (host, port)
        }
        None => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
    };
    let is_part = |c: char| c.is_alphanumeric() || "-._".contains(c);
    if host.is_empty() || !(text.starts_with('[') || host.chars().all(is_part)) {
        return Err(WRONG);
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port > 0).ok_or(("its port is invalid", "1 to 65535"))?
        }
        _ => return Err(("its port is invalid", "1 to 65535")),
    };
    Ok((host.to_owned(), port))
}

fn socket(rest: &str) -> Result<ParsedUrl, UrlProblem> {
    let path = match rest.strip_prefix("//") {
        Some(path) if !path.starts_with('/') => return Err(("a Unix socket has no host", SOCKET)),
        Some(path) => path,
        None => rest,
    };
    match decode(path)? {
        path if path.starts_with('/') => logged_in(Target::Server(Address::Socket(path.into())), None, 0),
        _ => Err(("its path is not absolute", SOCKET)),
    }
}

/// Decodes `%XX`, strictly.
fn decode(text: &str) -> Result<String, UrlProblem> {
    let hex = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !text.split('%').skip(1).all(hex) {
        return Err(("% is not followed by two hexadecimal digits", "write %25 where % is meant"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded =
        decoded.map_err(|_| ("what it encodes with % is not UTF-8", "encode text as UTF-8 first"))?;
    if decoded.chars().any(char::is_control) {
        return Err(("it has a control character", NETWORK));
    }
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refusals_say_what_is_wrong() {
        for (url, problem) in [
            ("", "no scheme"),
            ("host:6379", "scheme is unknown"),
            ("http://host", "scheme is unknown"),
            ("redis:host", "no host"),
            ("redis://", "host is invalid"),
            ("redis://:6379", "host is invalid"),
            ("redis://a b", "host is invalid"),
            ("redis://h1,h2", "host is invalid"),
            ("redis://[::1", "host is invalid"),
            ("redis://[host]", "host is invalid"),
            ("redis://host:", "port is invalid"),
            ("redis://host:0", "port is invalid"),
            ("redis://host:65536", "port is invalid"),
            ("redis://host:+1", "port is invalid"),
            ("redis://host/one", "database is not a number"),
            ("redis://host/-1", "database is not a number"),
            ("redis://host/1/2", "database is not a number"),
            ("redis://host/0?x=1", "parameters"),
            ("redis://user@host", "user without a password"),
            ("redis://u:%zz@host", "hexadecimal"),
            ("redis://u:%ff@host", "not UTF-8"),
            ("redis+cluster://h/0", "no databases"),
            ("redis+cluster://h,", "host is invalid"),
            ("redis+sentinel:h/x", "no host"),
            ("redis+sentinel://h", "names no service"),
            ("redis+sentinel://h/", "names no service"),
            ("redis+sentinel://h,/x", "host is invalid"),
            ("redis+sentinel://h:x/x", "port is invalid"),
            ("redis+sentinel://h/x/y", "database is not a number"),
            ("redis+sentinel://u@h/x", "user without a password"),
            ("redis+unix:run/r.sock", "not absolute"),
            ("redis+unix://host/r.sock", "no host"),
            ("redis+unix:/run/%00", "control character"),
        ] {
            let error = parse(url).err().expect(url).to_string();
            assert!(error.contains(problem), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_without_a_panic(rest in "[%0-9a-f:/@.\\[\\]?#é]{0,30}") {
            for scheme in ["redis:", "rediss:", "redis+unix:", "redis+sentinel:", "rediss+cluster:", ""] {
                let _ = parse(&format!("{scheme}{rest}"));
            }
        }

        #[test]
        fn a_password_is_never_repeated(
            before in "[:/@%\\[ ]{0,3}",
            after in "[:/@%\\] ]{0,3}",
            scheme in prop::sample::select(vec!["redis", "rediss", "redis+unix", "redis+sentinel", "http"]),
        ) {
            let secret = "zq7k2xw";
            let url = format!("{scheme}://user:{before}{secret}{after}@host:99999/");
            if let Err(error) = parse(&url) {
                prop_assert!(!format!("{error} {error:?}").contains(secret), "{error}");
            }
        }
    }
}
