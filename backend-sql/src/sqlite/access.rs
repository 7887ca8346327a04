//! The users of the file: each user who can write to it can acquire and break any lock in it.

use std::{io, path::Path};

/// Creates missing directories, for this user only.
pub(super) fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

/// Creates the file, for this user only, unless it exists. SQLite gives its companion files the same mode, and reports
/// itself why it cannot open a file that could not be created.
pub(super) fn create_file(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    if let Err(error) = options.write(true).create_new(true).open(path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        tracing::debug!(path = %path.display(), %error, "could not create the file");
    }
}

/// The message for a file that all users may write.
///
/// A writable group is fine: that is how users share it. Directories are not checked: container volumes are often open
/// to all in a place that no other user sees.
#[cfg(unix)]
pub(super) fn open_to_all(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o002;
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.mode() & 0o7777);
    let path = path.display();
    (mode & OTHERS_WRITE != 0).then(|| {
        format!(
            "{path} has the mode {mode:04o}: every user can write to it, and so acquire or break any lock; run `chmod o-w \
             {path}`, and use a group to share it"
        )
    })
}

#[cfg(not(unix))]
pub(super) fn open_to_all(_: &Path) -> Option<String> {
    None
}
