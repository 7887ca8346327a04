//! Which store is meant, and its locks.

use crate::exit::Failure;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::{
    env,
    path::{Path, PathBuf},
};
use tenure::Locks;

/// What has a meaning of its own in a URL, or none.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#').add(b'@');

/// Opens the store.
pub(crate) async fn open(given: Option<String>) -> Result<Locks, Failure> {
    Ok(tenure::connect(url(given)?).await?)
}

/// Opens the store for a command that runs while it holds a lock, which is to keep others out.
pub(crate) async fn open_to_hold(given: Option<String>) -> Result<Locks, Failure> {
    let locks = open(given).await?;
    if locks.store() == "memory" {
        let text = "the locks of memory: are in this process alone, so they keep nobody out; use sqlite:PATH between the \
                    processes of one machine, and the URL of a server between machines (tenure --help lists them)";
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
        let text = "there is no store: give --store URL or set TENURE_STORE, or set HOME to an absolute path in UTF-8";
        return Err(Failure::Usage(text.to_owned()));
    };
    Ok(format!("sqlite:{}?create_directory=true", utf8_percent_encode(path, ENCODED)))
}

/// The [XDG base directory](https://specifications.freedesktop.org/basedir-spec/latest/) for what a program remembers. Relative paths in the environment are to be
/// ignored.
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
