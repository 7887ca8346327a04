//! The schemes and parameters that [`connect`](crate::connect) understands, as data: for documentation and for the command's
//! help. Each store has its own, and says here what they are.
//!
//! A URL is `scheme:where?name=value&name=value`. `%XX` is decoded in paths and values; `+` is a plus. Everything that
//! is not understood is refused, with the list of what is: an unknown parameter, one that is given twice, one that has
//! no value, a fragment (`#`). `@`, `&`, `?`, `#` and `%` are written `%40`, `%26`, `%3F`, `%23` and `%25` where they
//! are meant themselves.

use crate::stores::{self, STORES};

/// One kind of URL.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scheme {
    /// What the URL begins with, before the colon.
    pub name: &'static str,
    /// How the URL is written.
    pub form: &'static str,
    /// The feature of this crate that the store needs.
    pub feature: &'static str,
    /// Where the locks live.
    pub about: &'static str,
}

/// One parameter of a URL: `?name=value`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name. What differs from store to store is a parameter each time.
    pub name: &'static str,
    /// The stores that have it, by the schemes that are listed first for each.
    pub stores: Vec<&'static str>,
    /// What values it can have.
    pub takes: String,
    /// What it is when the URL does not say.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// Every scheme of the stores that are built in.
#[must_use]
pub fn schemes() -> Vec<Scheme> {
    let scheme = |scheme: &tenure_core::url::Scheme| Scheme {
        name: scheme.name(),
        form: scheme.form,
        feature: stores::feature(scheme.name()).unwrap_or_default(),
        about: scheme.about,
    };
    stores::schemes().map(scheme).collect()
}

/// Every parameter of the stores that are built in, those of one name together.
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
