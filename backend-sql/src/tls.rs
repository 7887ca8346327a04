//! Encrypted connections, over rustls.

use rustls::{
    CertificateError, Error,
    crypto::{CryptoProvider, ring},
};

/// Where a certificate is checked but for its name, the driver takes the process's cryptography, and panics when there is
/// none. Whatever the program has chosen stays.
pub(crate) fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster.
        let _ = ring::default_provider().install_default();
    }
}

/// Why the server and this client cannot agree, and what to do about it; `None` when it is another error, or one that may
/// pass. `mode` and `authorities` are the names of parameters.
pub(crate) fn disagreement(error: &sqlx::Error, mode: &str, authorities: &str) -> Option<String> {
    let sqlx::Error::Io(error) = error else { return None };
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let advice = match error {
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "connect by a name that the certificate is for; {mode} may leave names unchecked where the network is trusted"
        ),
        // Two authorities may call themselves the same: then it is the signature that does not fit.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!("name the authority that issued the server's certificate with {authorities}")
        }
        Error::InvalidCertificate(_) => format!("check the server's certificate, {mode} and {authorities}"),
        Error::AlertReceived(_) => {
            "the server refused; check whether it wants a certificate of the client's".to_owned()
        }
        Error::PeerIncompatible(_) | Error::NoCertificatesPresented => {
            "the server must speak TLS 1.2 or 1.3".to_owned()
        }
        _ => return None,
    };
    Some(format!("{error}; {advice}"))
}
