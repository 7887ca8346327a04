//! The stores that are built in, and which of them a URL names.

use std::{pin::Pin, sync::Arc};
#[cfg(feature = "memory")]
use tenure_core::Memory;
use tenure_core::{
    Backend, Error,
    options::GIVEN_TEXT,
    url::{Guide, Refusal, Scheme, decode, scheme, scheme_names},
};
#[cfg(feature = "etcd")]
use tenure_etcd::{EtcdBackend, EtcdOptions};
#[cfg(feature = "nats")]
use tenure_nats::{NatsBackend, NatsOptions};
#[cfg(feature = "s3")]
use tenure_object::{ObjectBackend, ObjectOptions};
#[cfg(feature = "redis")]
use tenure_redis::{RedisBackend, RedisOptions, RedlockBackend, RedlockOptions};
#[cfg(feature = "mysql")]
use tenure_sql::{MySqlBackend, MySqlOptions};
#[cfg(feature = "postgres")]
use tenure_sql::{PostgresBackend, PostgresOptions};
#[cfg(feature = "sqlite")]
use tenure_sql::{SqliteBackend, SqliteOptions};
#[cfg(feature = "zookeeper")]
use tenure_zk::{ZkBackend, ZkOptions};

/// A store that is built in.
pub(crate) struct Store {
    pub(crate) urls: fn() -> Guide,
    /// Checks a whole URL of this store.
    open: fn(&str) -> Result<Opening, Error>,
}

/// A store whose URL has been checked. Nothing is opened until this is awaited.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>, Error>> + Send>>;

pub(crate) const STORES: &[Store] = &[
    #[cfg(feature = "memory")]
    Store { urls: Memory::urls, open: |url| opened(Memory::from_url(url), async |memory| Ok(memory)) },
    #[cfg(feature = "sqlite")]
    Store {
        urls: SqliteOptions::urls,
        open: |url| opened(SqliteOptions::from_url(url), SqliteBackend::open),
    },
    #[cfg(feature = "redis")]
    Store {
        urls: RedisOptions::urls,
        open: |url| opened(RedisOptions::from_url(url), RedisBackend::connect),
    },
    #[cfg(feature = "redis")]
    Store {
        urls: RedlockOptions::urls,
        open: |url| opened(RedlockOptions::from_url(url), RedlockBackend::connect),
    },
    #[cfg(feature = "postgres")]
    Store {
        urls: PostgresOptions::urls,
        open: |url| opened(PostgresOptions::from_url(url), PostgresBackend::connect),
    },
    #[cfg(feature = "mysql")]
    Store {
        urls: MySqlOptions::urls,
        open: |url| opened(MySqlOptions::from_url(url), MySqlBackend::connect),
    },
    #[cfg(feature = "zookeeper")]
    Store { urls: ZkOptions::urls, open: |url| opened(ZkOptions::from_url(url), ZkBackend::connect) },
    #[cfg(feature = "zookeeper-tls")]
    Store { urls: ZkOptions::tls_urls, open: |url| opened(ZkOptions::from_url(url), ZkBackend::connect) },
    #[cfg(feature = "etcd")]
    Store { urls: EtcdOptions::urls, open: |url| opened(EtcdOptions::from_url(url), EtcdBackend::connect) },
    #[cfg(feature = "etcd-tls")]
    Store {
        urls: EtcdOptions::tls_urls,
        open: |url| opened(EtcdOptions::from_url(url), EtcdBackend::connect),
    },
    #[cfg(feature = "nats")]
    Store { urls: NatsOptions::urls, open: |url| opened(NatsOptions::from_url(url), NatsBackend::connect) },
    #[cfg(feature = "s3")]
    Store {
        urls: ObjectOptions::urls,
        open: |url| opened(ObjectOptions::from_url(url), ObjectBackend::connect),
    },
];

/// The schemes that each feature adds, built in or not.
const FEATURES: &[(&str, &[&str])] = &[
    ("memory", &["memory"]),
    ("sqlite", &["sqlite"]),
    (
        "redis",
        &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
            "redlock",
            "rediss+redlock",
        ],
    ),
    ("postgres", &["postgres", "postgresql"]),
    ("mysql", &["mysql", "mariadb"]),
    ("zookeeper", &["zookeeper"]),
    ("zookeeper-tls", &["zookeeper+tls"]),
    ("etcd", &["etcd"]),
    ("etcd-tls", &["etcd+tls"]),
    ("nats", &["nats", "nats+tls"]),
    ("s3", &["s3"]),
];

#[allow(dead_code, reason = "there may be no store")]
fn opened<O, B, F>(options: Result<O, Error>, open: impl FnOnce(O) -> F) -> Result<Opening, Error>
where
    B: Backend + 'static,
    F: Future<Output = Result<B, Error>> + Send + 'static,
{
    let store = open(options?);
    Ok(Box::pin(async move { Ok(Arc::new(store.await?) as Arc<dyn Backend>) }))
}

/// Checks the whole of `url`, without using the network.
pub(crate) fn opening(url: &str) -> Result<Opening, Error> {
    let name = scheme_name(url);
    match (store(&name), feature(&name)) {
        (Some(store), _) => {
            let scheme = (store.urls)().schemes.iter().find(|scheme| scheme.name() == name);
            let opening = (store.open)(url).map_err(|error| of_url(error, url, scheme))?;
            let url = url.to_owned();
            Ok(Box::pin(async move { opening.await.map_err(|error| of_url(error, &url, scheme)) }))
        }
        (None, Some(feature)) => Err(not_built_in(&name, feature).of(url, None)),
        (None, None) => Err(scheme(url, schemes()).expect_err("no store has it")),
    }
}

/// The error about an option, which is from this URL: a store checks some only when it is opened.
fn of_url(error: Error, url: &str, scheme: Option<&Scheme>) -> Error {
    match error {
        Error::InvalidOption { option: "environment", .. } => error,
        Error::InvalidOption { option: "url", given, allowed, .. } => {
            Refusal::new(given, format!("write {allowed}")).of(url, scheme)
        }
        // The URL names the file that has it.
        Error::InvalidOption { option, given, allowed, .. } if given == GIVEN_TEXT => {
            let file = parameter(url, option).unwrap_or_default();
            Refusal::new(format!("the {option} file {file:?} is invalid"), format!("expected {allowed}"))
                .of(url, scheme)
        }
        Error::InvalidOption { .. } => {
            let text = error.to_string();
            let (problem, valid) = text.split_once("; ").unwrap_or((&text, ""));
            Refusal::new(problem, valid).of(url, scheme)
        }
        error => error,
    }
}

/// The default of this parameter, in words, in the store that `url` names; `None` if the store lacks it.
pub(crate) fn default_of(url: &str, parameter: &str) -> Option<&'static str> {
    let parameters = (store(&scheme_name(url))?.urls)().parameters;
    parameters.iter().find(|known| known.name == parameter).map(|known| known.default)
}

/// The value of a parameter that `url` has.
pub(crate) fn parameter(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(given, _)| *given == name).and_then(|(_, value)| decode(value).ok())
}

fn scheme_name(url: &str) -> String {
    url.split_once(':').map(|(name, _)| name.to_ascii_lowercase()).unwrap_or_default()
}

fn store(scheme: &str) -> Option<&'static Store> {
    STORES.iter().find(|store| (store.urls)().schemes.iter().any(|known| known.name() == scheme))
}

pub(crate) fn schemes() -> impl Iterator<Item = &'static Scheme> {
    STORES.iter().flat_map(|store| (store.urls)().schemes)
}

/// The feature that the URLs of this scheme need.
pub(crate) fn feature(scheme: &str) -> Option<&'static str> {
    FEATURES.iter().find(|(_, schemes)| schemes.contains(&scheme)).map(|(feature, _)| *feature)
}

fn not_built_in(scheme: &str, feature: &str) -> Refusal {
    let problem = format!("{scheme}: needs the feature {feature:?} of tenure, which this program lacks");
    Refusal::new(problem, format!("build with that feature, or use: {}", scheme_names(schemes())))
}

#[cfg(all(test, feature = "memory", feature = "sqlite"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(url: &str) -> String {
        opening(url).err().expect(url).to_string()
    }

    fn known() -> String {
        scheme_names(schemes())
    }

    #[test]
    fn refusals_say_what_is_wrong_and_what_would_be_valid() {
        let refused = [
            "",
            "locks.db",
            "ftp://host/x",
            "127.0.0.1:6379",
            "127.0.0.1:7000",
            "db.internal:5432/app?lease=5s",
            "db:3306",
            "zk1:2181,zk2:2181",
            "db:3307",
            "user:6379@host",
            "sqlit:locks.db",
            "Memroy:",
            "memori:password@host",
            "memory://host",
            "memory:?",
            "memory:#x",
            "memory:?tabel=x",
            "memory:?lease",
            "memory:?lease=5s&lease=5s",
            "memory:?lease=5s&",
            "memory:?lease=0s",
            "memory:?lease=366days",
            "memory:?prefix=%zz",
            "memory:?prefix=%ff",
            "memory:?prefix=a@b",
            "memory:?prefix=a%0Ab",
            "memory:?a b\u{7}=x",
            "sqlite:",
            "sqlite:locks.db&lease=5s",
            "sqlite://user:secret@host/locks.db",
            "sqlite::memory:",
            "sqlite:~/locks.db",
            "sqlite:a%00b",
            "sqlite:two\nlines",
        ];
        // The known schemes depend on the features.
        let line = |url: &&str| refusal(url).replace(&known(), "SCHEMES");
        let lines: Vec<String> = refused.iter().map(line).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    /// The tests are built with every feature, so a missing one has to be simulated.
    #[test]
    fn scheme_not_built_in_is_refused_with_its_feature() {
        for (feature, schemes) in FEATURES {
            for scheme in *schemes {
                let url = format!("{scheme}://user:secret@host");
                let error = not_built_in(scheme, feature).of(&url, None).to_string();
                for named in [scheme, feature, "which this program lacks", &*known()] {
                    assert!(error.contains(named), "{scheme}: {error}");
                }
                assert!(!error.contains("secret"), "{error}");
            }
        }
    }

    #[test]
    fn every_scheme_has_its_feature() {
        for scheme in schemes() {
            assert!(feature(scheme.name()).is_some(), "{}", scheme.name());
        }
        let count: usize = FEATURES.iter().map(|(_, schemes)| schemes.len()).sum();
        let all = cfg!(all(
            feature = "etcd-tls",
            feature = "mysql",
            feature = "nats",
            feature = "postgres",
            feature = "redis",
            feature = "s3",
            feature = "zookeeper-tls"
        ));
        assert!(!all || schemes().count() == count, "a scheme that no store has");
    }

    proptest! {
        #[test]
        fn any_text_is_refused_without_a_panic(url in ".{0,40}") {
            let _ = opening(&url);
        }

        #[test]
        fn any_text_after_a_scheme_is_refused_without_a_panic(rest in "[%0-9a-f&=?@/#:~\\[\\]é]{0,40}") {
            for scheme in schemes() {
                let _ = opening(&format!("{}:{rest}", scheme.name()));
            }
        }

        /// A password wherever one may stand, whole or split by characters that should have been encoded.
        #[test]
        fn password_is_never_repeated(
            parts in prop::collection::vec("zq[a-z0-9]{6}", 1..4),
            between in prop::sample::select(vec![":", "/", "?", "#", "@", "&", "=", "%", "%zz", ";", " ", "é", "//", "?password_file="]),
            form in prop::sample::select(vec![
                "SCHEME://user:PASSWORD@host/x", "SCHEME://:PASSWORD@host", "SCHEME://PASSWORD@host:1",
                "SCHEME://user:PASSWORD", "SCHEME:user:PASSWORD@host", "SCHEME//user:PASSWORD@host",
                "user:PASSWORD@host", ":PASSWORD@host", "PASSWORD@host",
                "SCHEME://host/?password=PASSWORD", "SCHEME:x?password=PASSWORD", "SCHEME:?lease=5s&password=PASSWORD",
                "SCHEME://user:PASSWORD@host/x?password_file=/nowhere", "SCHEME:/user:PASSWORD@host?password_file=/nowhere",
                "SCHEME://user:PASSWORD@host/x?lease=5s", "SCHEME://user:PASSWORD@host/x?lease=0s",
            ]),
            scheme in prop::sample::select(schemes().map(Scheme::name).chain(["amqp", "https"]).collect::<Vec<_>>()),
        ) {
            let password = parts.join(between);
            let url = form.replace("SCHEME", scheme).replace("PASSWORD", &password);
            // If the URL is valid, the store's own options take the password.
            let said = opening(&url).err().map(|error| format!("{error:?} {error:#?}")).unwrap_or_default();
            for part in &parts {
                prop_assert!(!said.contains(part), "{}: {}", url, said);
            }
        }
    }
}
