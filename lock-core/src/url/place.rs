//! The place in a URL: the text between its scheme and the question mark.

use super::{Refusal, Scheme, decode, password};

/// The text between the scheme and the question mark of a URL, not yet decoded.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    scheme: &'static Scheme,
    text: &'a str,
    password: Option<&'a str>,
}

/// The servers of a URL, with the login: `//[USER:PASSWORD@]HOST[:PORT],HOST[:PORT][/PATH]`.
pub struct Servers<'a> {
    /// The user and the password, decoded. The password may come from a file; the user may be empty.
    pub login: Option<(String, String)>,
    /// Each host as written, with its port; may be empty.
    pub hosts: Vec<&'a str>,
    /// The text after the first slash, not yet decoded; may be empty.
    pub path: &'a str,
}

impl<'a> Place<'a> {
    pub(super) fn of(scheme: &'static Scheme, url: &'a str) -> Result<Self, Refusal> {
        let (_, rest) = url.split_once(':').unwrap_or_default();
        let place = Self { scheme, text: rest.split('?').next().unwrap_or_default(), password: None };
        place.check_ports()?;
        Ok(place)
    }

    /// Reads a password for this place from a file, not yet decoded. A place without servers has room for any.
    pub(super) fn read_password(&self, file: &str) -> Result<String, Refusal> {
        let has_servers = self.scheme.has_servers();
        if has_servers && password::is_in(self.text) {
            let valid = "give only one of them";
            return Err(Refusal::new(format!("both a password and a {}", password::FILE), valid));
        }
        if has_servers && password::put_into(self.text, "").is_none() {
            return Err(self.refuse(format!("{} needs a host in the URL", password::FILE)));
        }
        password::read(&decode(file)?, password::FILE)
    }

    /// Adds the password of a file.
    pub(super) fn with_password(self, password: &'a str) -> Self {
        Self { password: Some(password), ..self }
    }

    /// The scheme's name.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.scheme.name()
    }

    /// The text as written.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The URL without its parameters. If it names a [file](super::Parameter::password_file), the password is in its
    /// place.
    #[must_use]
    pub fn url(&self) -> String {
        let logged_in = self.password.and_then(|password| password::put_into(self.text, password));
        format!("{}:{}", self.scheme.name(), logged_in.as_deref().unwrap_or(self.text))
    }

    /// The password of the [file](super::Parameter::password_file) that the URL names. [`servers`](Self::servers) has it
    /// in its login.
    #[must_use]
    pub fn password(&self) -> Option<&'a str> {
        self.password
    }

    /// The path of a file, not yet decoded: `scheme:PATH`, or `scheme:///PATH` for an absolute path. `None` if a host
    /// stands before it.
    #[must_use]
    pub fn path(&self) -> Option<&'a str> {
        match self.text.strip_prefix("//") {
            None => Some(self.text),
            Some(path) => path.starts_with('/').then_some(path),
        }
    }

    /// Reads the servers and the login. Everything before the last `@` is the login, even another `@`. If the URL names
    /// a [file](super::Parameter::password_file), the password is the file's.
    ///
    /// # Errors
    ///
    /// If there is no `//`, if a user has no password, or if something in them is badly encoded.
    pub fn servers(&self) -> Result<Servers<'a>, Refusal> {
        let Some((login, text)) = password::split(self.text) else {
            return Err(self.refuse("missing host"));
        };
        let (user, own) = match login.map(|login| login.split_once(':').ok_or(login)) {
            None => (None, None),
            Some(Ok((user, password))) => (Some(user), Some(decode(password)?)),
            Some(Err(user)) => (Some(user), None),
        };
        let login = match (user, own.or_else(|| self.password.map(str::to_owned))) {
            (None, None) => None,
            (Some(_), None) => return Err(self.refuse("user without a password")),
            (user, Some(password)) => Some((decode(user.unwrap_or_default())?, password)),
        };
        let (hosts, path) = text.split_once('/').unwrap_or((text, ""));
        Ok(Servers { login, hosts: hosts.split(',').collect(), path })
    }

    /// A refusal that shows the valid form of the URL.
    pub fn refuse(&self, problem: impl Into<String>) -> Refusal {
        Refusal::new(problem, format!("write {}", self.scheme.form))
    }

    /// Refuses ports that cannot be. In `//user:first?second`, the text before the `?` looks like a host and its port.
    fn check_ports(&self) -> Result<(), Refusal> {
        let Some(text) = self.text.strip_prefix("//").filter(|_| self.scheme.has_servers()) else {
            return Ok(());
        };
        let authority = text.split('/').next().unwrap_or_default();
        for host in authority.rsplit('@').next().unwrap_or_default().split(',') {
            // The colons within [::1] do not begin a port.
            let name = host.rfind(']').map_or(0, |bracket| bracket + 1);
            let port = host[name..].split_once(':').map_or("", |(_, port)| port);
            // Otherwise this may be the part of a password before a slash.
            let (number, has_login) = (port.trim_end_matches(' '), text.contains('@'));
            if !has_login && host.starts_with('[') && name == 0 {
                return Err(self.refuse("[ without ]"));
            }
            if !has_login && number.bytes().all(|byte| byte.is_ascii_digit()) {
                if host.starts_with(':') {
                    return Err(self.refuse("missing host"));
                } else if number != port {
                    return Err(Refusal::new("space after the port", "remove it"));
                }
            }
            let valid = format!("write {}, and percent-encode any password", self.scheme.form);
            if !port.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Refusal::new("port is not a number", valid));
            }
            if !port.is_empty() && !port.parse::<u16>().is_ok_and(|port| port > 0) {
                return Err(Refusal::new("port is not a number from 1 to 65535", valid));
            }
        }
        Ok(())
    }
}
