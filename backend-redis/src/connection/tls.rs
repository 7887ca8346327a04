//! The certificates of TLS connections: the trusted authorities, and the client's own.

#[cfg(feature = "tls")]
use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisError, TlsCertificates};
#[cfg(feature = "tls")]
use rustls::{
    CertificateError, Error as TlsError, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
#[cfg(feature = "tls")]
use tenure_core::options::GIVEN_TEXT;
use tenure_core::{Error, options::Secret};

/// Texts in PEM format, as they were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Certificates {
    /// The authorities to trust, if not the system's.
    pub(crate) roots: Option<Secret<Vec<u8>>>,
    /// The client's certificate, with its chain.
    pub(crate) certificate: Option<Secret<Vec<u8>>>,
    /// The key of that certificate.
    pub(crate) key: Option<Secret<Vec<u8>>>,
}

impl Certificates {
    /// Checks that they are valid, and that none is given without TLS.
    pub(crate) fn check(&self, tls: bool) -> Result<(), Error> {
        let Self { roots, certificate, key } = self;
        let given = [("tls_ca", roots), ("tls_cert", certificate), ("tls_key", key)];
        if let Some((option, _)) = given.iter().find(|(_, text)| text.is_some() && !tls) {
            return Err(Error::invalid_option(option, "it needs TLS", "rediss: in the URL"));
        }
        match (certificate, key) {
            (Some(_), None) => {
                Err(Error::invalid_option("tls_key", "", "the key of tls_cert, in PEM format"))
            }
            (None, Some(_)) => {
                Err(Error::invalid_option("tls_cert", "", "the certificate of tls_key, in PEM format"))
            }
            _ => self.check_texts(),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn check_texts(&self) -> Result<(), Error> {
        Ok(())
    }

    #[cfg(feature = "tls")]
    fn check_texts(&self) -> Result<(), Error> {
        if let Some(Secret(roots)) = &self.roots {
            let refused = |why: String| {
                Error::invalid_option("tls_ca", GIVEN_TEXT, format!("certificates in PEM format{why}"))
            };
            let parsed: Vec<_> = CertificateDer::pem_slice_iter(roots)
                .collect::<Result<_, _>>()
                .map_err(|error| refused(format!(" ({error})")))?;
            if parsed.is_empty() {
                return Err(refused(String::new()));
            }
            for certificate in parsed {
                RootCertStore::empty().add(certificate).map_err(|error| refused(format!(" ({error})")))?;
            }
        }
        let (Some(Secret(certificate)), Some(Secret(key))) = (&self.certificate, &self.key) else {
            return Ok(());
        };
        let refused = |option, what: &str, error: &dyn std::fmt::Display| {
            Error::invalid_option(option, GIVEN_TEXT, format!("{what} in PEM format ({error})"))
        };
        let chain = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| refused("tls_cert", "a certificate", &error))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| refused("tls_key", "a private key", &error))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map(drop)
            .map_err(|error| refused("tls_key", "the private key of tls_cert", &error))
    }

    /// A client that connects over TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn client(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        choose_cryptography();
        let identity = self.certificate.clone().zip(self.key.clone());
        let client_tls = identity
            .map(|(Secret(client_cert), Secret(client_key))| ClientTlsConfig { client_cert, client_key });
        let root_cert = self.roots.clone().map(|Secret(roots)| roots);
        Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
    }
}

/// The `redis` crate uses the process's default crypto provider, and panics if there is none. A provider that the
/// program has chosen stays.
#[cfg(feature = "tls")]
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has just installed one.
        let _ = ring::default_provider().install_default();
    }
}

/// Advice on a connection on which TLS failed like this.
#[cfg(feature = "tls")]
pub(crate) fn advice(error: &std::io::Error) -> Option<&'static str> {
    Some(match error.get_ref()?.downcast_ref::<TlsError>()? {
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "connect to a host name that the server's certificate covers",
        // Two authorities may have the same name: then the signature does not match.
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "give the authority that issued the server's certificate with tls_ca"
        }
        TlsError::InvalidCertificate(_) => "check the server's certificate, and tls_ca",
        TlsError::AlertReceived(_) => {
            "the server may require a client certificate: give one that it accepts with tls_cert and tls_key"
        }
        TlsError::PeerIncompatible(_) | TlsError::NoCertificatesPresented => {
            "the server must speak TLS 1.2 or 1.3"
        }
        TlsError::InvalidMessage(_) => "if the server has no TLS, write redis: instead of rediss: in its URL",
        _ => return None,
    })
}

#[cfg(not(feature = "tls"))]
pub(crate) fn advice(_: &std::io::Error) -> Option<&'static str> {
    None
}
