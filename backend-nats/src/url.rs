//! URLs of a bucket.

use crate::options::NatsOptions;
use tenure_core::{
    Error,
    url::{self, Guide, Place, Refusal, Scheme, Servers, Urls, decode},
};

type Parameter = url::Parameter<NatsOptions>;

const URLS: Urls<NatsOptions> = Urls {
    schemes: &[
        Scheme {
            form: "nats://[USER:PASSWORD@]HOST,HOST,HOST/BUCKET",
            about: "a key-value bucket of a NATS server or cluster",
        },
        Scheme { form: "nats+tls://[USER:PASSWORD@]HOST,HOST,HOST/BUCKET", about: "the same, over TLS" },
    ],
    parameters: &[NatsOptions::parameters(), PARAMETERS],
};

const PARAMETERS: &[Parameter] = &[
    Parameter::password_file(),
    Parameter::file("credentials_file", "none", |options, text| {
        options.credentials(String::from_utf8_lossy(&text).into_owned())
    })
    .about("a credentials file of NATS: the user's JWT and the seed of an NKey"),
    Parameter::text("tls_ca", "a file", "the system's", |options, file| options.tls_ca(file))
        .about("the authorities to trust instead of the system's, in PEM format"),
    Parameter::text("tls_cert", "a file", "none", |options, file| options.certificate(file.into()))
        .about("the client's certificate, in PEM format"),
    Parameter::text("tls_key", "a file", "none", |options, file| options.key(file.into()))
        .about("the key of that certificate, in PEM format"),
];

fn options(place: &Place<'_>) -> Result<NatsOptions, Refusal> {
    let Servers { login, hosts, path } = place.servers()?;
    if hosts.iter().any(|host| host.is_empty()) {
        return Err(place.refuse("missing host"));
    }
    let bucket: String = decode(path.trim_matches('/'))?;
    if bucket.is_empty() {
        return Err(place.refuse("missing bucket"));
    }
    let options = NatsOptions::new(hosts, bucket);
    Ok(match login {
        Some((user, password)) => options.user(user, password),
        None => options,
    })
}

impl NatsOptions {
    /// Reads a URL: the servers and the bucket that it names, and the options in its parameters.
    ///
    /// The form is `nats://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/BUCKET`, or `nats+tls://…`.
    ///
    /// `%XX` is decoded in the user, the password, the bucket and the parameters. [`urls`](Self::urls) lists the
    /// parameters. `lease` sets no option: [`url::lease`](tenure_core::url::lease()) reads it, for
    /// [`Locks::with_lease`](tenure_core::Locks::with_lease). The files that `password_file` and `credentials_file` name
    /// are read.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] for an invalid URL, without the password, and [`Error::InvalidOption`] for files that cannot
    /// be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_nats::NatsOptions;
    ///
    /// let options = NatsOptions::from_url("nats://billing:secret@nats1,nats2:4223/locks?replicas=3")?;
    /// assert!(!format!("{options:?}").contains("secret"));
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let is_encrypted = url::scheme(url, URLS.schemes)?.name() == "nats+tls";
        URLS.read(url, |place| {
            options(&place).map(|options| if is_encrypted { options.tls() } else { options })
        })
    }

    /// Describes its URLs and their parameters.
    #[must_use]
    pub fn urls() -> Guide {
        URLS.guide()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_reaches_its_options() {
        let options = NatsOptions::from_url("nats+tls://me:se%40cret@n1,n2:99/locks").unwrap();
        let seen = format!("{options:?}");
        for option in [r#"["n1", "n2:99"]"#, r#"bucket: "locks""#, r#"user: Some(("me", …))"#, "tls: true"]
        {
            assert!(seen.contains(option), "{option} is not in {seen}");
        }
        for url in ["nats://", "nats://host", "nats://host/", "nats:///locks"] {
            assert!(NatsOptions::from_url(url).is_err(), "{url}");
        }
    }
}
