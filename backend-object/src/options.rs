//! Options, and their ranges.

use crate::{content::Place, http::OnBackground};
use object_store::{
    ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
};
use std::{fmt, sync::Arc};
use tenure_core::Error;
use url::Url;

/// How to use a bucket. Credentials are not among the options: the environment has them, or a role.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_object::ObjectOptions;
///
/// let options = ObjectOptions::new("locks").region("eu-central-1").poll(Duration::from_secs(2));
/// assert!(format!("{options:?}").contains("eu-central-1"));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ObjectOptions {
    bucket: String,
    path: String,
    region: Option<String>,
    endpoint: Option<Endpoint>,
    pub(crate) values: Values,
}

tenure_core::options! {
    /// The options that are set in the same way in code and in a URL.
    pub(crate) struct Values for ObjectOptions;

    /// Puts all objects below this part of the path, behind [`path`](Self::path). Locks with different prefixes never
    /// meet.
    prefix: Prefix = "tenure";

    /// Whether to send requests without credentials, to a store that asks for none.
    unsigned: bool = false, "whether to send requests without credentials, to a store that asks for none";

    /// How far the clocks of the store's servers may differ. A dead client delays others by up to twice that.
    clock_skew: Duration = 500 ms, CLOCK_SKEW_RANGE = 1 ms..=10 s,
        "how far the servers' clocks may differ; a dead client delays others by up to twice that";

    /// How long a waiter goes without asking again. Each question costs a request. A dead waiter delays the others by three
    /// times as long, or 3 s if that is more, and up to two margins.
    poll: Duration = 5 s, POLL_RANGE = 50 ms..=1 min,
        "the longest time between two attempts of a waiter; one that dies delays the next by up to three times as long";

    /// How long an attempt to connect may take.
    connect_timeout: Duration = 5 s, CONNECT_TIMEOUT_RANGE = 10 ms..=10 min,
        "how long an attempt to connect may take";

    /// How long the store may take to answer before it counts as unavailable.
    response_timeout: Duration = 5 s, RESPONSE_TIMEOUT_RANGE = 10 ms..=10 min,
        "how long the server may take to answer before it counts as unavailable";
}

/// An address that is not checked yet, so a password may be in it.
#[derive(Clone)]
struct Endpoint(String);

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(['@', '?', '#']) { f.write_str("…") } else { fmt::Debug::fmt(&self.0, f) }
    }
}

impl ObjectOptions {
    /// Uses this bucket, which must be there.
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            path: String::new(),
            region: None,
            endpoint: None,
            values: Values::default(),
        }
    }

    /// Puts all objects below this path. Default: none.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The region of the bucket. Default: `AWS_REGION`, then `us-east-1`.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// The address of an S3-compatible store: `https://HOST` or `http://HOST:PORT`. Default:
    /// `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, then Amazon's.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(Endpoint(endpoint.into()));
        self
    }

    /// Where its objects are, if all options are in range.
    pub(crate) fn check(&self) -> Result<Place, Error> {
        let valid = |option, given: &str, is_valid: bool, allowed: &str| {
            let shown = format!("{:?}", given.chars().take(80).collect::<String>());
            if is_valid { Ok(()) } else { Err(Error::invalid_option(option, shown, allowed)) }
        };
        let plain =
            |text: &str, more: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
        let Self { bucket, path, region, endpoint, .. } = self;
        let prefix = &self.checked_values()?.prefix;
        let is_bucket = (3..=63).contains(&bucket.len()) && plain(bucket, "-.");
        valid("bucket", bucket, is_bucket, "3 to 63 letters, digits, - or .")?;
        let is_prefix = !prefix.is_empty() && prefix.len() <= 200 && !prefix.chars().any(char::is_control);
        valid("prefix", prefix, is_prefix, "1 to 200 bytes, no control character")?;
        let place = Place::new(path, prefix);
        let is_path = !place.is_too_long() && !path.chars().any(char::is_control);
        valid(
            "path",
            path,
            is_path,
            "400 bytes with the prefix (three for each that is escaped), no control character",
        )?;
        let region = region.as_deref().unwrap_or("none");
        valid("region", region, !region.is_empty() && plain(region, "-"), "letters, digits or -")?;
        endpoint.as_ref().map_or(Ok(()), |Endpoint(endpoint)| check_endpoint(endpoint))?;
        Ok(place)
    }

    /// The client of S3, and the name of the store.
    pub(crate) fn s3(&self, connector: OnBackground) -> Result<(Arc<dyn ObjectStore>, String), Error> {
        self.check()?;
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.bucket);
        if self.values.unsigned {
            builder = builder.with_skip_signature(true);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(Endpoint(endpoint)) = &self.endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        }
        for key in [
            AmazonS3ConfigKey::AccessKeyId,
            AmazonS3ConfigKey::SecretAccessKey,
            AmazonS3ConfigKey::Token,
            AmazonS3ConfigKey::Region,
        ] {
            // They become headers, of which the client expects no other characters.
            if builder
                .get_config_value(&key)
                .is_some_and(|value| !value.bytes().all(|b| b.is_ascii_graphic()))
            {
                let given = format!(
                    "{} has a space, a line end or another such character",
                    key.as_ref().to_uppercase()
                );
                return Err(Error::invalid_option("environment", given, "printable ASCII characters"));
            }
        }
        let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
        let endpoint = endpoint.iter().find_map(|key| builder.get_config_value(key)).unwrap_or_default();
        let mut name = format!("s3://{}", self.bucket);
        for segment in self.path.split('/').filter(|segment| !segment.is_empty()) {
            name.extend(["/", segment]);
        }
        if !endpoint.is_empty() {
            let allowed = format!("{ENDPOINT} in AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL");
            check_endpoint(&endpoint).map_err(|_| {
                Error::invalid_option("environment", "the endpoint is not an address", allowed)
            })?;
            name.extend(["?endpoint=", &endpoint]);
        }
        let client = ClientOptions::new()
            .with_connect_timeout(self.values.connect_timeout)
            // Its timer would panic where an answer is read, once the background's runtime has ended.
            .with_timeout_disabled()
            .with_allow_http(endpoint.starts_with("http:"));
        // A conditional put that is sent again fails because of itself.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = builder.with_retry(retry).with_client_options(client).with_http_connector(connector);
        let unfit =
            |error| Error::invalid_option("environment", error, "settings of S3 in the variables AWS_…");
        Ok((Arc::new(builder.build().map_err(unfit)?), name))
    }
}

const ENDPOINT: &str = "https://HOST[:PORT] or http://HOST[:PORT]";

/// Of another form, the client would panic, or send a password in it.
fn check_endpoint(endpoint: &str) -> Result<(), Error> {
    let is_address = |url: Url| {
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_whole = url.query().is_none() && url.fragment().is_none() && url.has_host();
        ["http", "https"].contains(&url.scheme()) && is_plain && is_whole
    };
    if endpoint.bytes().all(|byte| byte.is_ascii_graphic()) && Url::parse(endpoint).is_ok_and(is_address) {
        return Ok(());
    }
    // No part of it is repeated: it may be a password.
    Err(Error::invalid_option("endpoint", "not an address", ENDPOINT))
}
