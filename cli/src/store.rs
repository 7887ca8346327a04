//! Which store to use, and how to open it.

use crate::exit::Failure;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::{
    env,
    path::{Path, PathBuf},
};
use tenure::Locks;

/// Characters that are special or not allowed in a URL.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#').add(b'@');

/// Opens the store.
pub(crate) async fn open(given: Option<String>) -> Result<Locks, Failure> {
    Ok(tenure::connect(url(given)?).await?)
}

/// Opens the store for a command that holds a lock. Refuses a store that would keep nobody out.
pub(crate) async fn open_to_hold(given: Option<String>) -> Result<Locks, Failure> {
    let locks = open(given).await?;
    if locks.store() == "memory" {
        let text = "memory: keeps locks in this process only, so they exclude nobody; use sqlite:PATH between \
                    processes of one machine, or a server's URL between machines (see tenure --help)";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(locks)
}

/// The store's URL: `--store`, else `TENURE_STORE`, which clap has read as well, else this user's file.
pub(crate) fn url(given: Option<String>) -> Result<String, Failure> {
    given.map_or_else(|| default_url(state_directory()), Ok)
}

fn default_url(state: Option<PathBuf>) -> Result<String, Failure> {
    let file = state.map(|state| state.join("tenure/locks.db"));
    let Some(path) = file.as_deref().and_then(Path::to_str) else {
        let text =
            "no store is given: use --store URL, set TENURE_STORE, or set HOME to an absolute path in UTF-8";
        return Err(Failure::Usage(text.to_owned()));
    };
    Ok(format!("sqlite:{}?create_directory=true", utf8_percent_encode(path, ENCODED)))
}

/// The [XDG base directory](https://specifications.freedesktop.org/basedir-spec/latest/) for a program's state. It says
/// to ignore relative paths in the environment.
fn state_directory() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_directories_are_encoded() {
        let url = default_url(Some("/home/a b/50%/é@x?#".into())).unwrap();
        assert_eq!(url, "sqlite:/home/a b/50%25/%C3%A9%40x%3F%23/tenure/locks.db?create_directory=true");
        assert!(default_url(None).is_err());
    }
}
