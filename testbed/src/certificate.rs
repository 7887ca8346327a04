//! Certificates for servers that speak TLS.

use std::path::Path;
use std::process::Command;

/// Writes `NAME.pem`, a certificate of this machine by name and by number, and `NAME.key`. The certificate signs itself.
///
/// # Panics
///
/// If `openssl` is missing or fails.
pub fn certify(directory: &Path, name: &str) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
        .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
        .current_dir(directory)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
