//! The schemes and parameters that [`connect`](crate::connect) understands, as data: for documentation and for the
//! command's help. They come from the stores themselves.
//!
//! A URL is `scheme:where?name=value&name=value`. `%XX` is decoded in paths and values; `+` is a plus. An unknown
//! scheme or parameter is refused, and the error names the one that was probably meant, or lists what is valid. So is a
//! parameter that is given twice or has no value, and a fragment (`#`). Literal `@`, `&`, `?`, `#` and `%` are written
//! `%40`, `%26`, `%3F`, `%23` and `%25`.

use crate::stores::{self, STORES, parameter};
pub use tenure_core::url::with_password;

/// One kind of URL.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scheme {
    /// The beginning of the URL, before the colon.
    pub name: &'static str,
    /// How the URL is written.
    pub form: &'static str,
    /// The feature of this crate that the store needs.
    pub feature: &'static str,
    /// Where the locks live.
    pub about: &'static str,
    /// The first scheme of its store, by which [`Parameter::stores`] names it.
    pub store: &'static str,
}

/// One parameter of a URL: `?name=value`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name. A parameter that differs from store to store is listed once for each variant.
    pub name: &'static str,
    /// The stores that have it, each by the first of its schemes.
    pub stores: Vec<&'static str>,
    /// The values that it takes.
    pub takes: String,
    /// Its default.
    pub default: &'static str,
    /// Its effect.
    pub about: &'static str,
}

/// All schemes of the stores that are built in.
#[must_use]
pub fn schemes() -> Vec<Scheme> {
    let of = |schemes: &'static [tenure_core::url::Scheme]| {
        schemes.iter().map(|scheme| Scheme {
            name: scheme.name(),
            form: scheme.form,
            feature: stores::feature(scheme.name()).unwrap_or_default(),
            about: scheme.about,
            store: schemes[0].name(),
        })
    };
    STORES.iter().flat_map(|store| of((store.urls)().schemes)).collect()
}

/// All parameters of the stores that are built in, grouped by name.
#[must_use]
pub fn parameters() -> Vec<Parameter> {
    let mut all: Vec<Parameter> = Vec::new();
    for guide in STORES.iter().map(|store| (store.urls)()) {
        let store = guide.schemes[0].name();
        for own in guide.parameters {
            let is_own = |known: &&mut Parameter| {
                (known.name, &known.takes, known.default, known.about)
                    == (own.name, &own.takes, own.default, own.about)
            };
            if let Some(known) = all.iter_mut().find(is_own) {
                known.stores.push(store);
                continue;
            }
            let place = all.iter().rposition(|known| known.name == own.name).map_or(all.len(), |at| at + 1);
            let (name, takes, default, about) = (own.name, own.takes, own.default, own.about);
            all.insert(place, Parameter { name, stores: vec![store], takes, default, about });
        }
    }
    all
}

/// Returns which locks of its store `url` names: `prefix`, `table` and `strategy`, as far as the store has them, with
/// the value in the URL or the default, and `key` if it is in the URL. A table whose default depends on the strategy is
/// left out unless the URL has it.
///
/// Two clients of one server exclude each other only if all of these are the same. They are not part of the store's
/// [name](crate::Locks::store), and none is a secret.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// assert_eq!(
///     tenure::urls::namespace("sqlite:locks.db?prefix=ci%2F"),
///     [("prefix", "ci/".to_owned()), ("table", "tenure_locks".to_owned())]
/// );
/// ```
#[must_use]
pub fn namespace(url: &str) -> Vec<(&'static str, String)> {
    let value = |name| {
        let default = stores::default_of(url, name)?;
        let default = || match default {
            "none" => Some(String::new()),
            words if words.contains(' ') => None,
            default => Some(default.to_owned()),
        };
        Some((name, parameter(url, name).or_else(default)?))
    };
    let mut all: Vec<_> = ["prefix", "table", "strategy"].into_iter().filter_map(value).collect();
    if parameter(url, "key").is_some() {
        all.extend(value("key"));
    }
    all
}
