//! Encrypted connections, over rustls.

use rustls::{
    CertificateError, Error,
    crypto::{CryptoProvider, ring},
};

/// To check a certificate without its name, the driver uses the process's default crypto provider, and panics if there
/// is none. A provider that the program has chosen stays.
pub(crate) fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has just installed one.
        let _ = ring::default_provider().install_default();
    }
}

/// Why TLS with the server failed, and the next step; `None` for another error, or one that may pass. `mode` and
/// `authorities` are the names of parameters.
pub(crate) fn disagreement(error: &sqlx::Error, mode: &str, authorities: &str) -> Option<String> {
    let sqlx::Error::Io(error) = error else { return None };
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let advice = match error {
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "connect to a host name that the certificate covers; in a trusted network, {mode} skips the check of the name"
        ),
        // Two authorities may have the same name: then the signature does not match.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!("give the authority that issued the server's certificate with {authorities}")
        }
        Error::InvalidCertificate(_) => format!("check the server's certificate, {mode} and {authorities}"),
        Error::AlertReceived(_) => {
            "the server refused; check whether it requires a client certificate".to_owned()
        }
        Error::PeerIncompatible(_) | Error::NoCertificatesPresented => {
            "the server must speak TLS 1.2 or 1.3".to_owned()
        }
        _ => return None,
    };
    Some(format!("{error}; {advice}"))
}
