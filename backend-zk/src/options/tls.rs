//! The certificates of a TLS connection: the trusted authorities, and the client's own.

use rustls::{
    ClientConfig, RootCertStore,
    client::WebPkiServerVerifier,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName,
        pem::{Error as PemError, PemObject},
    },
};
use std::sync::Arc;
use tenure_core::{
    Error,
    options::{GIVEN_TEXT, Secret},
};
use zookeeper_client::TlsOptions;

/// Texts in PEM format, as they were given.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) roots: Secret<String>,
    /// A certificate with its chain, and its key.
    pub(crate) identity: Option<Secret<(String, String)>>,
}

/// Parsed [`Tls`].
#[derive(Clone)]
pub(crate) struct CheckedTls {
    pub(crate) client: TlsOptions,
    /// For requests that bypass the client.
    pub(crate) config: Arc<ClientConfig>,
}

impl Tls {
    pub(crate) fn check(self) -> Result<CheckedTls, Error> {
        choose_cryptography();
        let config = Arc::new(self.config()?);
        let options = TlsOptions::new().with_pem_ca(&self.roots.0).map_err(|error| bad_roots(&error))?;
        let client = match &self.identity {
            Some(Secret((certificate, key))) => {
                options.with_pem_identity(certificate, key).map_err(|error| bad_identity(&error))?
            }
            None => options,
        };
        Ok(CheckedTls { client, config })
    }

    fn config(&self) -> Result<ClientConfig, Error> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        let certificates = parse::<CertificateDer<'_>>(&self.roots.0).map_err(|error| bad_roots(&error))?;
        roots.add_parsable_certificates(certificates);
        let lists = parse::<CertificateRevocationListDer<'_>>(&self.roots.0);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
            .with_crls(lists.map_err(|error| bad_roots(&error))?)
            .build()
            .map_err(|error| bad_roots(&error))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad_roots(&error))?
            .with_webpki_verifier(verifier);
        let Some(Secret((certificate, key))) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let bad_certificate =
            |why: &dyn std::fmt::Display| bad("tls_cert", "certificates in PEM format", why);
        let certificates =
            parse::<CertificateDer<'_>>(certificate).map_err(|error| bad_certificate(&error))?;
        if certificates.is_empty() {
            return Err(bad_certificate(&PemError::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| bad("tls_key", "a private key in PEM format", &error))?;
        builder.with_client_auth_cert(certificates, key).map_err(|error| bad_identity(&error))
    }
}

/// Whether a certificate can be issued for this host.
pub(crate) fn may_be_certified(host: &str) -> bool {
    ServerName::try_from(host).is_ok()
}

fn parse<Item: PemObject>(pem: &str) -> Result<Vec<Item>, PemError> {
    Item::pem_slice_iter(pem.as_bytes()).collect()
}

fn bad_roots(why: &dyn std::fmt::Display) -> Error {
    bad("tls_ca", "one or more certificates in PEM format", why)
}

fn bad_identity(why: &dyn std::fmt::Display) -> Error {
    bad("tls_key", "the private key of tls_cert", why)
}

/// The options have the names of the URL's parameters.
fn bad(option: &'static str, what: &str, why: &dyn std::fmt::Display) -> Error {
    Error::invalid_option(option, GIVEN_TEXT, format!("{what} ({why})"))
}

/// The client uses the process's default crypto provider, and panics if there is none. A provider that the program has
/// chosen stays.
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has just installed one.
        let _ = ring::default_provider().install_default();
    }
}
