//! Who may use the file: whoever may write it may take and break any lock in it.

use std::{io, path::Path};

/// Makes the directories that are missing, for this user alone.
pub(super) fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

/// Makes the file, for this user alone, unless there is one. SQLite gives its companions the same mode, and says itself what
/// keeps it from opening a file that could not be made.
pub(super) fn create_file(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    if let Err(error) = options.write(true).create_new(true).open(path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        tracing::debug!(path = %path.display(), %error, "the file could not be made");
    }
}

/// What to say when everybody may write the file.
///
/// That its group may is how users share it. Directories are not judged: volumes of containers are open to all in a place that
/// nobody else sees.
#[cfg(unix)]
pub(super) fn open_to_everybody(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o002;
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.mode() & 0o7777);
    let path = path.display();
    (mode & OTHERS_WRITE != 0).then(|| {
        format!(
            "{path} has the mode {mode:04o}: everybody may write it, and so take or break any lock; run `chmod o-w {path}`, and \
             let users share it by a group"
        )
    })
}

#[cfg(not(unix))]
pub(super) fn open_to_everybody(_: &Path) -> Option<String> {
    None
}
