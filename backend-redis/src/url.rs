//! URLs of one server, of a Sentinel's master and of a Cluster, and the parts that they share with Redlock's.

use crate::{
    connection::address::{Address, Target},
    options::RedisOptions,
};
use tenure_core::{
    Error,
    options::Contains,
    url::{Guide, Parameter, Place, Refusal, Scheme, Servers, Urls, decode},
};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// The parameters outside the table of options that mean the same for one server and for several.
pub(crate) const fn of_each_server<O: Contains<RedisOptions>>() -> [Parameter<O>; 3] {
    [
        Parameter::<O>::file("tls_ca", "the system's", |options, pem| {
            options.change(|server: RedisOptions| server.tls_roots(pem.clone()))
        })
        .about("the authorities to trust instead of the system's, in PEM format"),
        Parameter::<O>::file("tls_cert", "none", |options, pem| {
            options.change(|server: RedisOptions| server.tls_certificate(pem.clone()))
        })
        .about("the client's certificate, in PEM format"),
        Parameter::<O>::file("tls_key", "none", |options, pem| {
            options.change(|server: RedisOptions| server.tls_key(pem.clone()))
        })
        .about("the key of that certificate, in PEM format"),
    ]
}

impl RedisOptions {
    const URLS: Urls<Self> = Urls {
        schemes: &[
            Scheme { form: "redis://[USER:PASSWORD@]HOST[:PORT][/DB]", about: "one Redis server" },
            Scheme { form: "rediss://[USER:PASSWORD@]HOST[:PORT][/DB]", about: "one Redis server, over TLS" },
            Scheme { form: "redis+unix:PATH", about: "one Redis server, over a Unix socket" },
            Scheme {
                form: "redis+sentinel://[USER:PASSWORD@]HOST,HOST/SERVICE[/DB]",
                about: "Redis with Sentinel failover",
            },
            Scheme {
                form: "rediss+sentinel://[USER:PASSWORD@]HOST,HOST/SERVICE[/DB]",
                about: "Redis with Sentinel failover, over TLS",
            },
            Scheme { form: "redis+cluster://[USER:PASSWORD@]HOST,HOST", about: "a Redis Cluster" },
            Scheme { form: "rediss+cluster://[USER:PASSWORD@]HOST,HOST", about: "a Redis Cluster, over TLS" },
        ],
        parameters: &[
            &[Parameter::password_file()],
            Self::parameters(),
            &of_each_server(),
            &[
                Parameter::flag("fair", "false", Self::fair)
                    .about("whether waiters of all clients are served in the order in which they came"),
                Parameter::number("replicas", Self::REPLICAS_RANGE, "0", Self::replicas)
                    .about("how many replicas must have a grant before it counts"),
                Parameter::text("sentinel_user", "a user", "default", |options: Self, user| {
                    options.sentinel_user(user.to_owned())
                })
                .about("the user at the sentinels, with sentinel_password_file"),
                Parameter::other_password_file(
                    "sentinel_password_file",
                    "the master's, if a sentinel requires one",
                    Self::sentinel_password,
                )
                .about("the file that has the sentinels' password, if it is not the master's"),
            ],
        ],
    };

    /// Reads a URL: the server that it names, and the options in its parameters.
    ///
    /// | form | the server |
    /// |---|---|
    /// | `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]` | over TCP, by default on port 6379 |
    /// | `rediss://…` | the same over TLS |
    /// | `redis+unix:PATH` | over a Unix socket |
    /// | `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/SERVICE[/DATABASE]` | the master of a service that these sentinels (by default on port 26379) know |
    /// | `redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]` | all servers of the Cluster to which these belong |
    /// | `rediss+sentinel://…`, `rediss+cluster://…` | the same with TLS to each of them |
    ///
    /// `%XX` is decoded in the user, the password, the path and the parameters. [`urls`](Self::urls) lists the
    /// parameters. The files that the parameters name are read. `lease` sets no option:
    /// [`url::lease`](tenure_core::url::lease()) reads it, for [`Locks::with_lease`](tenure_core::Locks::with_lease).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`], which never repeats the password; also if the file with it cannot be read, or can be read
    /// by others.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        Self::URLS.read(url, |place| {
            let tls = is_encrypted(&place)?;
            match place.scheme() {
                "redis+unix" => socket(&place),
                "redis+sentinel" | "rediss+sentinel" => sentinel(&place, tls),
                "redis+cluster" | "rediss+cluster" => cluster(&place, tls),
                _ => server(&place, tls),
            }
        })
    }

    /// Describes its URLs and their parameters.
    #[must_use]
    pub fn urls() -> Guide {
        Self::URLS.guide()
    }
}

/// Whether the scheme begins with `rediss`.
pub(crate) fn is_encrypted(place: &Place<'_>) -> Result<bool, Refusal> {
    let tls = place.scheme().starts_with("rediss");
    if tls && !cfg!(feature = "tls") {
        let valid = "build with the feature \"tls\" of tenure-redis";
        return Err(Refusal::new("this program was built without TLS", valid));
    }
    Ok(tls)
}

fn server(place: &Place<'_>, tls: bool) -> Result<RedisOptions, Refusal> {
    let servers = place.servers()?;
    let [host] = servers.hosts[..] else {
        let valid = "write redis+sentinel:, redis+cluster: or redlock: for several";
        return Err(Refusal::new("more than one host", valid));
    };
    let options = RedisOptions::at(Target::Server(address(place, host, PORT, tls)?));
    logged_in(options, place, servers.login, servers.path)
}

fn sentinel(place: &Place<'_>, tls: bool) -> Result<RedisOptions, Refusal> {
    let Servers { login, hosts, path } = place.servers()?;
    let sentinels = addresses(place, &hosts, SENTINEL_PORT, tls)?;
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    let service = plain(decode(service)?)?;
    if service.is_empty() {
        return Err(place.refuse("missing service"));
    }
    logged_in(RedisOptions::at(Target::Sentinel { sentinels, service, tls }), place, login, database)
}

fn cluster(place: &Place<'_>, tls: bool) -> Result<RedisOptions, Refusal> {
    let Servers { login, hosts, path } = place.servers()?;
    if !path.is_empty() {
        return Err(place.refuse("a Redis Cluster has no databases"));
    }
    let seeds = addresses(place, &hosts, PORT, tls)?;
    logged_in(RedisOptions::at(Target::Cluster { seeds, tls }), place, login, "")
}

/// Independent servers, with the same user, password and database on each.
pub(crate) fn several(place: &Place<'_>) -> Result<Vec<RedisOptions>, Refusal> {
    let tls = is_encrypted(place)?;
    let Servers { login, hosts, path } = place.servers()?;
    let server = |address| logged_in(RedisOptions::at(Target::Server(address)), place, login.clone(), path);
    addresses(place, &hosts, PORT, tls)?.into_iter().map(server).collect()
}

fn socket(place: &Place<'_>) -> Result<RedisOptions, Refusal> {
    let refuse = |problem| Refusal::new(problem, "write redis+unix:/run/redis/redis.sock");
    let Some(path) = place.path() else { return Err(refuse("redis+unix: takes no host")) };
    let path = plain(decode(path)?)?;
    if !path.starts_with('/') {
        return Err(refuse("relative path"));
    }
    let options = RedisOptions::at(Target::Server(Address::Socket(path.into())));
    Ok(match place.password() {
        Some(password) => options.password(password.to_owned()),
        None => options,
    })
}

fn logged_in(
    options: RedisOptions,
    place: &Place<'_>,
    login: Option<(String, String)>,
    database: &str,
) -> Result<RedisOptions, Refusal> {
    let options = match login {
        None => options,
        Some((user, password)) if user.is_empty() => options.password(plain(password)?),
        Some((user, password)) => options.credentials(plain(user)?, plain(password)?),
    };
    match number(database) {
        _ if database.is_empty() => Ok(options),
        Some(number) => Ok(options.database(number)),
        None => Err(place.refuse("database is not a number")),
    }
}

fn addresses(place: &Place<'_>, hosts: &[&str], port: u16, tls: bool) -> Result<Vec<Address>, Refusal> {
    hosts.iter().map(|host| address(place, host, port, tls)).collect()
}

fn address(place: &Place<'_>, text: &str, default: u16, tls: bool) -> Result<Address, Refusal> {
    let wrong = || place.refuse("invalid host");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            (host, port)
        }
        None => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
    };
    let is_part = |c: char| c.is_alphanumeric() || "-._".contains(c);
    if host.is_empty() {
        return Err(place.refuse("missing host"));
    }
    if !(text.starts_with('[') || host.chars().all(is_part)) {
        return Err(wrong());
    }
    let port = if port.is_empty() { Some(default) } else { port.strip_prefix(':').and_then(number) };
    let Some(port) = port.filter(|port| *port > 0) else {
        return Err(Refusal::new("invalid port", "expected 1 to 65535"));
    };
    Ok(Address::Network { host: host.to_owned(), port, tls })
}

/// A number in digits alone.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn plain(text: String) -> Result<String, Refusal> {
    if text.chars().any(char::is_control) {
        let valid = "no user, password, service or path may contain one";
        return Err(Refusal::new("encoded control character", valid));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refusals_name_the_mistake() {
        for (url, problem) in [
            ("", "missing scheme"),
            ("host:6379", "missing scheme"),
            ("host:6380", "unknown scheme"),
            ("http://host", "unknown scheme"),
            ("redis:host", "missing host"),
            ("redis://", "missing host"),
            ("redis://:6379", "missing host"),
            ("redis://a b", "invalid host"),
            ("redis://h1,h2", "more than one host"),
            ("redis://[::1", "[ without ]"),
            ("redis://h:6379 ", "space after the port"),
            ("redis://[host]", "invalid host"),
            ("redis://host:", "invalid port"),
            ("redis://host:0", "port is not a number from 1 to 65535"),
            ("redis://host:65536", "port is not a number from 1 to 65535"),
            ("redis://host:+1", "port is not a number"),
            ("redis://host/one", "database is not a number"),
            ("redis://host/-1", "database is not a number"),
            ("redis://host/1/2", "database is not a number"),
            ("redis://host/0?x=1", "unknown parameter \"x\""),
            ("redis://user@host", "user without a password"),
            ("redis://u:%zz@host", "hexadecimal"),
            ("redis://u:%ff@host", "not UTF-8"),
            ("redis+cluster://h/0", "no databases"),
            ("redis+cluster://h,", "missing host"),
            ("redis+sentinel:h/x", "missing host"),
            ("redis+sentinel://h", "missing service"),
            ("redis+sentinel://h/", "missing service"),
            ("redis+sentinel://h,/x", "missing host"),
            ("redis+sentinel://h:x/x", "port is not a number"),
            ("redis+sentinel://h/x/y", "database is not a number"),
            ("redis+sentinel://u@h/x", "user without a password"),
            ("redis+unix:run/r.sock", "relative path"),
            ("redis+unix://host/r.sock", "takes no host"),
            ("redis+unix:/run/%00", "control character"),
        ] {
            let error = RedisOptions::from_url(url).expect_err(url).to_string();
            assert!(error.contains(problem), "{url}: {error}");
        }
    }

    #[test]
    fn password_is_read_from_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "zq7k2x w\n").unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        for (url, user) in [
            ("redis://host", None),
            ("redis://me@host/3", Some("me")),
            ("redis+unix:/run/redis.sock", None),
            ("redis+sentinel://me@h1,h2/service", Some("me")),
            ("redis+cluster://h1,h2", None),
        ] {
            let options = RedisOptions::from_url(&format!("{url}?password_file={}", file.display())).unwrap();
            let login = options.login();
            assert_eq!((login.username(), login.password()), (user, Some("zq7k2x w")), "{url}");
            assert!(!format!("{options:?}").contains("zq7k2x"), "{options:?}");
        }
        let url = format!("redis://me:hunter2@host?password_file={}", file.display());
        let error = RedisOptions::from_url(&url).unwrap_err().to_string();
        assert!(error.contains("both a password and a password_file"), "{error}");
        assert!(!error.contains("hunter2") && !error.contains("zq7k2x"), "{error}");
    }

    #[test]
    fn sentinel_password_is_read_from_its_file_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "zq7k2x w\n").unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let file = format!("sentinel_password_file={}", file.display());
        let read = |url: &str| RedisOptions::from_url(&format!("{url}{file}")).unwrap();
        let options = read("redis+sentinel://me:hunter2@h1,h2/service?sentinel_user=you&");
        assert!(options.check().is_ok());
        let login = options.sentinel_login().unwrap();
        assert_eq!((login.username(), login.password()), (Some("you"), Some("zq7k2x w")));
        assert_eq!(options.login().password(), Some("hunter2"));
        assert!(!format!("{options:?}").contains("zq7k2x"), "{options:?}");
        for (options, named) in [
            (read("redis://host?"), "redis+sentinel:"),
            (
                RedisOptions::from_url("redis+sentinel://h/service?sentinel_user=you").unwrap(),
                "sentinel_user",
            ),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains("sentinel_password_file") && error.contains(named), "{error}");
        }
        let missing = "redis+sentinel://h/service?sentinel_password_file=/nowhere/password";
        let error = RedisOptions::from_url(missing).unwrap_err().to_string();
        assert!(error.contains("sentinel_password_file needs a file"), "{error}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificate_files_need_tls_and_are_checked_before_connecting() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("no.pem");
        std::fs::write(&file, "no certificate").unwrap();
        let refused = |url: &str| {
            let url = url.replace("FILE", &file.display().to_string());
            RedisOptions::from_url(&url).and_then(|options| options.check()).expect_err(&url).to_string()
        };
        for (url, named) in [
            ("redis://host?tls_ca=FILE", "rediss:"),
            ("redis+sentinel://host/x?tls_cert=FILE&tls_key=FILE", "rediss:"),
            ("redis+cluster://host?tls_key=FILE", "rediss:"),
            ("redis+unix:/run/r.sock?tls_ca=FILE", "rediss:"),
            ("rediss://host?tls_cert=FILE", "tls_key"),
            ("rediss+cluster://host?tls_key=FILE", "tls_cert"),
            ("rediss://host?tls_ca=FILE", "certificates in PEM format"),
            ("rediss://host?tls_cert=FILE&tls_key=FILE", "PEM format"),
            ("rediss://host?tls_ca=/nowhere/ca.pem", "cannot read the tls_ca file \"/nowhere/ca.pem\""),
        ] {
            let error = refused(url);
            assert!(error.contains(named), "{url}: {error}");
        }
        // The frame of a certificate, with three bytes that are none.
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n").unwrap();
        let error = refused("rediss://host?tls_ca=FILE");
        assert!(error.contains("invalid tls_ca") && !error.contains("redis://"), "{error}");
    }

    proptest! {
        #[cfg(unix)]
        #[test]
        fn password_of_a_file_is_read_as_written_or_refused(
            bytes in prop_oneof![
                any::<Vec<u8>>(),
                "\\PC{0,9}(\n|\r\n|\r|\0)?\\PC{0,9}(\n|\r\n|\n\n)?".prop_map(String::into_bytes),
            ],
        ) {
            // A file of `tempfile` has mode 0600.
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&file, &bytes).unwrap();
            let line = std::str::from_utf8(&bytes).ok();
            let line = line.map(|text| text.strip_suffix("\r\n").or(text.strip_suffix('\n')).unwrap_or(text));
            let sound = line.filter(|line| !line.is_empty() && !line.chars().any(char::is_control));
            let options = RedisOptions::from_url(&format!("redis://h?password_file={}", file.path().display()));
            prop_assert_eq!(options.ok().map(|options| options.login().password().map(str::to_owned)), sound.map(|line| Some(line.to_owned())));
        }
    }
}
