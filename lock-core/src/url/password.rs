//! The password of a URL: in it, or in a file that it names.

use super::{Refusal, encode};
use std::{
    fs::{File, Metadata},
    io::{self, Read},
};

/// The parameter that names the file.
pub(super) const FILE: &str = "password_file";

/// How many bytes the file may have. A longer one is something else: a log, a disk's image, an endless file of `/proc`.
const MOST: u64 = 64 * 1024;

/// The login, `USER` or `USER:PASSWORD`, and what follows it, of text that begins with `//`. Everything before the last
/// `@` is the login, even another `@`.
pub(super) fn split(text: &str) -> Option<(Option<&str>, &str)> {
    let text = text.strip_prefix("//")?;
    Some(text.rsplit_once('@').map_or((None, text), |(login, rest)| (Some(login), rest)))
}

/// Whether the text between the scheme and the question mark has a password.
pub(super) fn is_in(text: &str) -> bool {
    split(text).is_some_and(|(login, _)| login.is_some_and(|login| login.contains(':')))
}

/// The text with this password in it. `None` if it names no host, or has a password.
pub(super) fn put_into(text: &str, password: &str) -> Option<String> {
    let (login, rest) = split(text).filter(|_| !text.starts_with("///") && !is_in(text))?;
    let names_host = !rest.is_empty() && !rest.starts_with('/');
    names_host.then(|| format!("//{}:{}@{rest}", login.unwrap_or_default(), encode(password)))
}

/// Reads a password from the file at `path`, without the end of its line. `parameter` names the file in the URL.
pub(super) fn read(path: &str, parameter: &str) -> Result<String, Refusal> {
    let refuse = |problem: String| {
        Refusal::new(problem, format!("{parameter} needs a file with the password and nothing else"))
    };
    let unreadable = |error: io::Error| refuse(format!("cannot read the password from {path:?} ({error})"));
    let file = open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(refuse(format!("{path:?} is not a regular file")));
    }
    if let Some(change) = change_for_safety(&metadata) {
        let problem = format!("other users can read the password in {path:?}");
        return Err(Refusal::new(problem, format!("run: chmod {change} {path:?}")));
    }
    let (mut text, mut start) = (String::new(), file.take(MOST + 1));
    let outcome = start.read_to_string(&mut text);
    // Comes first, because the start of a longer text may end within a character.
    if start.limit() == 0 {
        return Err(refuse(format!("{path:?} is longer than 64 KiB")));
    }
    outcome.map_err(unreadable)?;
    let password = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    if password.is_empty() {
        return Err(refuse(format!("{path:?} is empty")));
    }
    if password.chars().any(char::is_control) {
        return Err(refuse(format!("{path:?} has several lines or a control character")));
    }
    Ok(password.to_owned())
}

/// Opens a file without waiting for the other end of a FIFO.
fn open(path: &str) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    {
        use nix::fcntl::OFlag;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(OFlag::O_NONBLOCK.bits());
    }
    options.read(true).open(path)
}

/// The change for `chmod` after which no other user has access to a file.
#[cfg(unix)]
fn change_for_safety(file: &Metadata) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt;
    change_of(file.uid(), file.mode())
}

#[cfg(not(unix))]
fn change_for_safety(_: &Metadata) -> Option<&'static str> {
    None
}

/// The rule of libpq for private keys. A group may read root's file: this is how a secret that is mounted into a
/// container gets to a user who is not root.
#[cfg(unix)]
fn change_of(owner: u32, mode: u32) -> Option<&'static str> {
    match owner {
        0 if mode & 0o037 != 0 => Some("g-wx,o="),
        0 => None,
        _ => (mode & 0o077 != 0).then_some("go="),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Place, Scheme},
        *,
    };
    use proptest::prelude::*;

    #[test]
    fn password_is_added_only_if_the_url_has_none() {
        for (text, with) in [
            ("//host", Some("//:a%40%2F@host")),
            ("//host:1/db", Some("//:a%40%2F@host:1/db")),
            ("//me@h1,h2/db", Some("//me:a%40%2F@h1,h2/db")),
            ("//me@there@host", Some("//me@there:a%40%2F@host")),
            ("//:old@host", None),
            ("//me:@host", None),
            ("/run/redis.sock", None),
            ("///run/redis.sock", None),
            ("///run/me@redis.sock", None),
            ("///app", None),
            ("//me@/app", None),
            ("//", None),
            ("", None),
        ] {
            assert_eq!(put_into(text, "a@/").as_deref(), with, "{text}");
        }
    }

    proptest! {
        #[test]
        fn password_is_read_as_written(
            user in prop::option::of("[^:@/\\p{Cc}]{0,8}"),
            password in "\\PC{1,20}",
            hosts in prop::collection::vec("[a-z]{1,4}(:[1-9][0-9]{0,3})?|\\[::1\\](:[1-9][0-9]{0,3})?", 1..4),
            path in "[a-z/]{0,6}",
        ) {
            const SERVERS: Scheme = Scheme { form: "s://HOST", about: "" };
            let login = user.as_ref().map_or(String::new(), |user| format!("{}@", encode(user)));
            let without = format!("//{login}{}/{path}", hosts.join(","));
            let url = format!("s:{}", put_into(&without, &password).unwrap());
            let servers = Place::of(&SERVERS, &url).and_then(|place| place.servers()).unwrap();
            prop_assert_eq!(servers.login, Some((user.unwrap_or_default(), password.clone())));
            prop_assert_eq!((servers.hosts.join(","), servers.path), (hosts.join(","), &*path));
            prop_assert_eq!(put_into(&url[2..], "other"), None);
        }
    }

    #[cfg(unix)]
    #[test]
    fn password_file_with_wide_permissions_is_refused() {
        for (owner, mode, change) in [
            (1000, 0o100_600, None),
            (1000, 0o100_400, None),
            (1000, 0o100_640, Some("go=")),
            (1000, 0o100_604, Some("go=")),
            (0, 0o100_440, None),
            (0, 0o100_640, None),
            (0, 0o100_660, Some("g-wx,o=")),
            (0, 0o100_444, Some("g-wx,o=")),
        ] {
            assert_eq!(change_of(owner, mode), change, "{owner} {mode:o}");
        }
    }
}
