//! URLs of a cluster.

use crate::options::EtcdOptions;
use tenure_core::{
    Error,
    url::{self, Guide, Place, Refusal, Scheme, Servers, Urls, decode},
};

type Parameter = url::Parameter<EtcdOptions>;

const URLS: Urls<EtcdOptions> = Urls {
    schemes: &[Scheme { form: "etcd://[USER:PASSWORD@]HOST,HOST,HOST[/PATH]", about: "an etcd cluster" }],
    parameters: &[EtcdOptions::parameters(), &[Parameter::password_file()]],
};

#[cfg(feature = "tls")]
const TLS_URLS: Urls<EtcdOptions> = Urls {
    schemes: &[Scheme {
        form: "etcd+tls://[USER:PASSWORD@]HOST,HOST,HOST[/PATH]",
        about: "an etcd cluster, over TLS",
    }],
    parameters: &[EtcdOptions::parameters(), &[Parameter::password_file()], TLS_PARAMETERS],
};

#[cfg(feature = "tls")]
const TLS_PARAMETERS: &[Parameter] = &[
    Parameter::file("tls_ca", "required", |options, pem| options.tls(text(&pem)))
        .about("the authorities that the servers' certificates are checked against, in PEM format"),
    Parameter::file("tls_cert", "none", |options, pem| options.certificate(text(&pem)))
        .about("the client's certificate, in PEM format"),
    Parameter::file("tls_key", "none", |options, pem| options.key(text(&pem)))
        .about("the key of that certificate, in PEM format"),
];

/// Lossy: a file that is not UTF-8 has no certificate, and is refused later.
#[cfg(feature = "tls")]
fn text(pem: &[u8]) -> String {
    String::from_utf8_lossy(pem).into_owned()
}

fn options(place: &Place<'_>) -> Result<EtcdOptions, Refusal> {
    let Servers { login, hosts, path } = place.servers()?;
    if hosts.iter().any(|host| host.is_empty()) {
        return Err(place.refuse("missing host"));
    }
    let options = EtcdOptions::new(hosts).path(decode(path)?);
    Ok(match login {
        Some((user, password)) => options.user(user, password),
        None => options,
    })
}

impl EtcdOptions {
    /// Reads a URL: the cluster that it names, and the options in its parameters.
    ///
    /// The form is `etcd://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT][/PATH]`, or `etcd+tls://…` with the feature `tls`.
    ///
    /// `%XX` is decoded in the user, the password, the path and the parameters. [`urls`](Self::urls) lists the
    /// parameters. `lease` sets no option: [`url::lease`](tenure_core::url::lease()) reads it, for
    /// [`Locks::with_lease`](tenure_core::Locks::with_lease). The files that `password_file` and the `tls_…`
    /// parameters name are read.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] for an invalid URL, without the password, and [`Error::InvalidOption`] for files that cannot
    /// be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_etcd::EtcdOptions;
    ///
    /// let options = EtcdOptions::from_url("etcd://billing:secret@etcd1,etcd2:2479/app?session_timeout=20s")?;
    /// assert!(!format!("{options:?}").contains("secret"));
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        if url::scheme(url, URLS.schemes.iter().chain(TLS_URLS.schemes))?.name() == "etcd+tls" {
            return TLS_URLS.read(url, |place| options(&place).map(Self::encrypted));
        }
        URLS.read(url, |place| options(&place))
    }

    /// Describes its URLs and their parameters.
    #[must_use]
    pub fn urls() -> Guide {
        URLS.guide()
    }

    /// Describes its URLs with TLS, and their parameters.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_urls() -> Guide {
        TLS_URLS.guide()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_reaches_its_options() {
        let seen = format!("{:?}", EtcdOptions::from_url("etcd://me:se%40cret@e1,e2:99/root").unwrap());
        for option in [r#"["e1", "e2:99"]"#, r#"path: "root""#, r#"user: Some(("me", …))"#] {
            assert!(seen.contains(option), "{option} is not in {seen}");
        }
        assert!(EtcdOptions::from_url("etcd://").is_err());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificates_are_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem").display().to_string();
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----").unwrap();
        let options = EtcdOptions::from_url(&format!("etcd+tls://e?tls_ca={file}")).unwrap();
        assert!(format!("{options:?}").contains("is_on: true"));
        assert!(EtcdOptions::from_url("etcd+tls://e?tls_ca=/nowhere/ca.pem").is_err());
        assert!(EtcdOptions::from_url(&format!("etcd://e?tls_ca={file}")).is_err());
    }
}
