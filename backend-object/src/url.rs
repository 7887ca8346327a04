//! URLs of a bucket.

use crate::options::ObjectOptions;
use tenure_core::{
    Error,
    url::{self, Guide, Place, Refusal, Scheme, Servers, Urls, decode},
};

type Parameter = url::Parameter<ObjectOptions>;

const URLS: Urls<ObjectOptions> = Urls {
    schemes: &[Scheme { form: "s3://BUCKET[/PATH]", about: "a bucket of S3 or an S3-compatible store" }],
    parameters: &[ObjectOptions::parameters(), PARAMETERS],
};

const PARAMETERS: &[Parameter] = &[
    Parameter::text("region", "a region", "AWS_REGION, or us-east-1", |options, region| {
        options.region(region)
    })
    .about("the region of the bucket"),
    Parameter::text(
        "endpoint",
        "https://HOST[:PORT] or http://HOST[:PORT]",
        "AWS_ENDPOINT_URL_S3, or Amazon's",
        |options, endpoint| options.endpoint(endpoint),
    )
    .about("the address of an S3-compatible store"),
];

fn options(place: &Place<'_>) -> Result<ObjectOptions, Refusal> {
    let Servers { login, hosts, path } = place.servers()?;
    match (login, &*hosts) {
        (None, [bucket]) if !bucket.is_empty() => Ok(ObjectOptions::new(decode(bucket)?).path(decode(path)?)),
        (None, _) => Err(place.refuse("missing bucket")),
        (Some(_), _) => Err(place.refuse(
            "credentials in the URL, where logs show them: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )),
    }
}

impl ObjectOptions {
    /// Reads a URL: the bucket and the path that it names, and the options in its parameters.
    ///
    /// The form is `s3://BUCKET[/PATH]`. `%XX` is decoded in the path and the parameters. [`urls`](Self::urls) lists the
    /// parameters. `lease` sets no option: [`url::lease`](tenure_core::url::lease()) reads it, for
    /// [`Locks::with_lease`](tenure_core::Locks::with_lease).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] for an invalid URL.
    ///
    /// # Examples
    ///
    /// ```
    /// use tenure_object::ObjectOptions;
    ///
    /// let options = ObjectOptions::from_url("s3://locks/billing?endpoint=https://minio:9000&poll=2s")?;
    /// assert!(ObjectOptions::from_url("s3://KEY:SECRET@locks").is_err());
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        URLS.read(url, |place| options(&place))
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
    fn url_without_one_bucket_or_with_credentials_is_refused() {
        for url in ["s3://", "s3:///path", "s3:locks", "s3://one,two"] {
            assert!(ObjectOptions::from_url(url).is_err(), "{url}");
        }
        let refused = ObjectOptions::from_url("s3://key:zq-secret@locks").unwrap_err().to_string();
        assert!(refused.contains("AWS_ACCESS_KEY_ID") && !refused.contains("zq-secret"), "{refused}");
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let long = "é".repeat(70);
        for (options, option) in [
            (ObjectOptions::new("no"), "bucket"),
            (ObjectOptions::new("lo_cks"), "bucket"),
            (ObjectOptions::new("locks").prefix(""), "prefix"),
            (ObjectOptions::new("locks").path(long), "path"),
            (ObjectOptions::new("locks").region("eu west"), "region"),
            (ObjectOptions::new("locks").endpoint("minio:9000"), "endpoint"),
            (ObjectOptions::new("locks").endpoint("https://[::1"), "endpoint"),
            (ObjectOptions::new("locks").endpoint("http://minio:99999"), "endpoint"),
            (ObjectOptions::new("locks").endpoint("https://minío"), "endpoint"),
            (ObjectOptions::new("locks").endpoint("https://minio?token=zq-secret"), "endpoint"),
            (ObjectOptions::new("locks").endpoint("http://me:zq-secret@minio"), "endpoint"),
        ] {
            let refused = options.check().unwrap_err().to_string();
            assert!(refused.contains(option), "{refused}");
            assert!(!format!("{refused} {options:?}").contains("zq-secret"), "{refused} {options:?}");
        }
    }
}
