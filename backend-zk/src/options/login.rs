//! The user that a session belongs to.

use tenure_core::{Error, options::Secret};
use zookeeper_client::{Acl, Acls, AuthId, Connector, Permission};

/// A user, and how it authenticates to the servers.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    scheme: Scheme,
    user: String,
    password: Secret<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// User and password, whose digest is the user's name in an ACL. The servers accept any.
    Digest,
    /// A user that the servers know.
    #[cfg(feature = "sasl")]
    Sasl,
}

impl Login {
    pub(crate) fn digest(user: String, password: String) -> Self {
        Self { scheme: Scheme::Digest, user, password: Secret(password) }
    }

    #[cfg(feature = "sasl")]
    pub(crate) fn sasl(user: String, password: String) -> Self {
        Self { scheme: Scheme::Sasl, user, password: Secret(password) }
    }

    pub(crate) fn check(self) -> Result<Self, Error> {
        let (separators, allowed): (&[char], _) = match self.scheme {
            Scheme::Digest => (&[':'], "one or more characters, without a colon"),
            #[cfg(feature = "sasl")]
            Scheme::Sasl => (&['"', '\\'], "one or more characters, without quotation marks and backslashes"),
        };
        let fits = |c: char| !c.is_control() && !separators.contains(&c);
        if self.user.is_empty() || !self.user.chars().all(fits) {
            return Err(Error::invalid_option("user", format!("{:?}", self.user), allowed));
        }
        Ok(self)
    }

    /// Makes sessions authenticate with it.
    pub(crate) fn show(&self, connector: Connector) -> Connector {
        match self.scheme {
            Scheme::Digest => {
                let shown = format!("{}:{}", self.user, self.password.0);
                connector.with_auth("digest", shown.as_bytes())
            }
            #[cfg(feature = "sasl")]
            Scheme::Sasl => connector.with_sasl(zookeeper_client::SaslOptions::digest_md5(
                self.user.clone(),
                self.password.0.clone(),
            )),
        }
    }

    /// Whether to check that the servers have authenticated the user. Servers without SASL silently ignore it.
    pub(crate) fn must_be_confirmed(&self) -> bool {
        #[cfg(feature = "sasl")]
        return self.scheme == Scheme::Sasl;
        #[cfg(not(feature = "sasl"))]
        return false;
    }
}

/// The ACL of the nodes of this user's sessions.
pub(crate) fn acl(login: Option<&Login>) -> Vec<Acl> {
    if login.is_none() {
        return Acls::anyone_all().to_vec();
    }
    let mut acl = Acls::creator_all().to_vec();
    acl.push(Acl::new(Permission::READ, AuthId::anyone()));
    acl
}
