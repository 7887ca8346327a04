//! URLs of an ensemble.

use crate::options::ZkOptions;
use tenure_core::{
    Error,
    options::Contains,
    url::{self, Guide, Place, Refusal, Scheme, Servers, Urls, decode},
};

type Parameter = url::Parameter<Given>;

const URLS: Urls<Given> = Urls {
    schemes: &[Scheme {
        form: "zookeeper://[USER:PASSWORD@]HOST,HOST,HOST[/CHROOT]",
        about: "a ZooKeeper ensemble",
    }],
    parameters: &[ZkOptions::parameters(), PARAMETERS],
};

#[cfg(feature = "tls")]
const TLS_URLS: Urls<Given> = Urls {
    schemes: &[Scheme {
        form: "zookeeper+tls://[USER:PASSWORD@]HOST,HOST,HOST[/CHROOT]",
        about: "a ZooKeeper ensemble, over TLS",
    }],
    parameters: &[ZkOptions::parameters(), PARAMETERS, tls::PARAMETERS],
};

const PARAMETERS: &[Parameter] = &[
    Parameter::prefix("/tenure", |given, prefix| {
        let slash = if prefix.starts_with('/') { "" } else { "/" };
        Given { options: given.options.prefix(format!("{slash}{prefix}")), ..given }
    }),
    Parameter::password_file(),
    Parameter::word("nodes", &["lock", "read-write"], "lock", |given, word| Given {
        options: given.options.read_write_nodes(word == "read-write"),
        ..given
    })
    .about(
        "which lock of Curator sees exclusive holders: InterProcessMutex (lock) or \
        InterProcessReadWriteLock (read-write)",
    ),
    Parameter::word("auth", &["digest", "sasl"], "digest", |given, word| Given {
        sasl: word == "sasl",
        ..given
    })
    .about(
        "how the client authenticates: by a digest that the servers do not check, or by \
        SASL (DIGEST-MD5; feature zookeeper-sasl)",
    ),
];

/// The part of a URL that has been read so far.
struct Given {
    options: ZkOptions,
    login: Option<(String, String)>,
    sasl: bool,
    #[cfg(feature = "tls")]
    files: tls::Files,
}

impl Given {
    fn at(place: &Place<'_>) -> Result<Self, Refusal> {
        let Servers { login, hosts, path } = place.servers()?;
        if hosts.iter().any(|host| host.is_empty()) {
            return Err(place.refuse("missing host"));
        }
        let path = decode(path.strip_suffix('/').unwrap_or(path))?;
        let chroot = if path.is_empty() { path } else { format!("/{path}") };
        Ok(Self {
            options: ZkOptions::new(hosts).chroot(chroot),
            login,
            sasl: false,
            #[cfg(feature = "tls")]
            files: tls::Files::default(),
        })
    }

    fn logged_in(self) -> Result<ZkOptions, Error> {
        match (self.login, self.sasl) {
            (None, false) => Ok(self.options),
            (None, true) => {
                let allowed = "a user and a password before the hosts";
                Err(Error::invalid_option("auth", "sasl without a login", allowed))
            }
            (Some((user, password)), false) => Ok(self.options.digest(user, password)),
            #[cfg(feature = "sasl")]
            (Some((user, password)), true) => Ok(self.options.sasl(user, password)),
            #[cfg(not(feature = "sasl"))]
            (Some(_), true) => {
                let allowed = "digest, because this program lacks the feature \"zookeeper-sasl\" of tenure";
                Err(Error::invalid_option("auth", "sasl", allowed))
            }
        }
    }
}

impl Contains<ZkOptions> for Given {
    fn change(self, mut change: impl FnMut(ZkOptions) -> ZkOptions) -> Self {
        Self { options: change(self.options), ..self }
    }
}

impl ZkOptions {
    /// Reads a URL: the ensemble that it names, and the options in its parameters.
    ///
    /// The form is `zookeeper://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT][/CHROOT]`, or `zookeeper+tls://…` with the
    /// feature `tls`.
    ///
    /// `%XX` is decoded in the user, the password, the path and the parameters. [`urls`](Self::urls) lists the
    /// parameters. `lease` sets no option: [`url::lease`](tenure_core::url::lease()) reads it, for
    /// [`Locks::with_lease`](tenure_core::Locks::with_lease). The files that `password_file` and the `tls_…`
    /// parameters name are read.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] for an invalid URL, without the password, and [`Error::InvalidOption`] for parameters that
    /// do not go together and for files that cannot be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_zk::ZkOptions;
    ///
    /// let options = ZkOptions::from_url("zookeeper://billing:secret@zk1,zk2:2182/app?session_timeout=20s")?;
    /// assert!(!format!("{options:?}").contains("secret"));
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        if tenure_core::url::scheme(url, URLS.schemes.iter().chain(TLS_URLS.schemes))?.name()
            == "zookeeper+tls"
        {
            let mut given = TLS_URLS.read(url, |place| Given::at(&place))?;
            given.options = given.files.read(given.options)?;
            return given.logged_in();
        }
        URLS.read(url, |place| Given::at(&place))?.logged_in()
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

/// The parameters of encrypted connections.
#[cfg(feature = "tls")]
mod tls {
    use super::{Error, Given, Parameter, ZkOptions};

    pub(super) const PARAMETERS: &[Parameter] = &[
        Parameter::text("tls_ca", "a file", "required", |given, file| {
            given.with_files(|files| files.ca = Some(file.to_owned()))
        })
        .about("the authorities that the servers' certificates are checked against, in PEM format"),
        Parameter::text("tls_cert", "a file", "none", |given, file| {
            given.with_files(|files| files.cert = Some(file.to_owned()))
        })
        .about("the client's certificate, in PEM format"),
        Parameter::text("tls_key", "a file", "none", |given, file| {
            given.with_files(|files| files.key = Some(file.to_owned()))
        })
        .about("the key of that certificate, in PEM format"),
    ];

    #[derive(Default)]
    pub(super) struct Files {
        ca: Option<String>,
        cert: Option<String>,
        key: Option<String>,
    }

    impl Given {
        fn with_files(mut self, change: impl FnOnce(&mut Files)) -> Self {
            change(&mut self.files);
            self
        }
    }

    impl Files {
        pub(super) fn read(&self, options: ZkOptions) -> Result<ZkOptions, Error> {
            let options = options.tls(read("tls_ca", self.ca.as_deref())?);
            if self.cert.is_none() && self.key.is_none() {
                return Ok(options);
            }
            let certificate = read("tls_cert", self.cert.as_deref())?;
            Ok(options.tls_identity(certificate, read("tls_key", self.key.as_deref())?))
        }
    }

    fn read(option: &'static str, file: Option<&str>) -> Result<String, Error> {
        let Some(file) = file else {
            return Err(Error::invalid_option(
                option,
                "",
                format!("{option}=FILE in the URL, a file in PEM format"),
            ));
        };
        std::fs::read_to_string(file).map_err(|error| {
            Error::invalid_option(option, format!("{file:?} ({error})"), "a readable file in PEM format")
        })
    }
}

#[cfg(all(test, feature = "sasl", feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn place_and_login_reach_their_options() {
        let seen = |url: &str| format!("{:?}", ZkOptions::from_url(url).unwrap());
        let all = seen("zookeeper://me:se%40cret@zk1,zk2:99/root?auth=sasl");
        for option in
            [r#"["zk1", "zk2:99"]"#, r#"chroot: "/root""#, r#"scheme: Sasl, user: "me", password: …"#]
        {
            assert!(all.contains(option), "{option} is not in {all}");
        }
        for url in ["zookeeper://me:secret@zk", "zookeeper://me:secret@zk?auth=digest"] {
            assert!(seen(url).contains("scheme: Digest"), "{url}");
        }
        let error = ZkOptions::from_url("zookeeper://zk?auth=sasl").unwrap_err();
        assert!(error.to_string().contains("a user and a password"), "{error}");
    }

    #[test]
    fn password_is_read_from_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "se@cret\n").unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let url = format!("zookeeper://me@zk1,zk2/root?password_file={}", file.display());
        let given = URLS.read(&url, |place| Given::at(&place)).unwrap();
        assert_eq!(given.login, Some(("me".to_owned(), "se@cret".to_owned())));
    }

    #[test]
    fn certificates_are_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, name).unwrap();
            path.display().to_string()
        };
        let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
        let given = |parameters: &str| ZkOptions::from_url(&format!("zookeeper+tls://zk?{parameters}"));
        for parameters in [format!("tls_ca={ca}"), format!("tls_ca={ca}&tls_cert={cert}&tls_key={key}")] {
            let seen = format!("{:?}", given(&parameters).unwrap());
            assert!(seen.contains("tls: Some("), "{parameters}: {seen}");
        }
        for (parameters, refused) in [
            ("session_timeout=9s".to_owned(), "tls_ca"),
            ("tls_ca=/nowhere/ca.pem".to_owned(), "tls_ca"),
            (format!("tls_ca={ca}&tls_cert={cert}"), "tls_key"),
            (format!("tls_ca={ca}&tls_key={key}"), "tls_cert"),
        ] {
            let error = given(&parameters).unwrap_err();
            assert!(
                matches!(&error, Error::InvalidOption { option, .. } if *option == refused),
                "{parameters}: {error}"
            );
        }
        let error = ZkOptions::from_url(&format!("zookeeper://zk?tls_ca={ca}")).unwrap_err();
        assert!(error.to_string().contains("unknown parameter \"tls_ca\""), "{error}");
    }
}
