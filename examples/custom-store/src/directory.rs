//! The files: one client at a time, whole or not at all, a path for every name.

use crate::record::Record;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt::Write as _,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};
use tenure_core::Name;

/// How many bytes of a name are in one segment of its path. Each becomes three characters at most, and file systems
/// allow 255.
const SEGMENT: usize = 80;

#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path).map_err(about(path))?;
        Ok(Self(path.to_owned()))
    }

    /// Waits until nobody else changes anything here. The system ends the section of a process that dies.
    pub(crate) fn enter(&self, patience: Duration) -> io::Result<Section<'_>> {
        let path = self.0.join("mutex");
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let mutex = open.map_err(about(&path))?;
        let until = Instant::now() + patience;
        loop {
            match mutex.try_lock() {
                // The clock is read inside: a reading from before the wait would be older than what others wrote.
                Ok(()) => return Ok(Section { directory: self, now: SystemTime::now(), _mutex: mutex }),
                Err(TryLockError::Error(error)) => return Err(about(&path)(error)),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => {
                    let error = io::Error::new(io::ErrorKind::TimedOut, "another process keeps it locked");
                    return Err(about(&path)(error));
                }
            }
        }
    }

    /// Each name has a path of its own. Only lower-case letters, digits, `-` and `_` stand for themselves, so two names
    /// do not meet where the file system ignores case either; and only the last segment has a dot, so a name is no
    /// directory of another.
    fn path_of(&self, name: &Name) -> PathBuf {
        let mut path = self.0.clone();
        for segment in name.as_bytes().chunks(SEGMENT) {
            path.push(segment.iter().fold(String::new(), |mut text, byte| {
                match byte {
                    b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(*byte)),
                    _ => write!(text, "%{byte:02x}").expect("a String takes every text"),
                }
                text
            }));
        }
        path.add_extension("lock");
        path
    }
}

/// The time during which only this client changes the directory.
pub(crate) struct Section<'a> {
    directory: &'a Directory,
    /// The store's clock.
    pub(crate) now: SystemTime,
    _mutex: File,
}

impl Section<'_> {
    pub(crate) fn read(&self, name: &Name) -> io::Result<Record> {
        Ok(read(&self.directory.path_of(name))?.unwrap_or_else(|| Record::free(name)))
    }

    /// All records, in no order. A directory that is changed while it is read may tell of a file twice or not at all:
    /// in the section nobody changes it.
    pub(crate) fn read_all(&self) -> io::Result<Vec<Record>> {
        let (mut records, mut directories) = (Vec::new(), vec![self.directory.0.clone()]);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).map_err(about(&directory))? {
                let path = entry.map_err(about(&directory))?.path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "lock") {
                    records.extend(read(&path)?);
                }
            }
        }
        Ok(records)
    }

    /// Reads the record of `name`, changes it, and writes it back if that made a difference.
    pub(crate) fn change<T>(
        &self,
        name: &Name,
        change: impl FnOnce(&mut Record, SystemTime) -> io::Result<T>,
    ) -> io::Result<T> {
        let before = self.read(name)?;
        let mut record = before.clone();
        let outcome = change(&mut record, self.now)?;
        let path = self.directory.path_of(name);
        if record.is_empty() {
            self.remove(&path)?;
        } else if record != before {
            write(&path, &record)?;
        }
        Ok(outcome)
    }

    /// A token greater than every earlier one: one counter for all names, so that a name's file can go when the name is
    /// free. It starts from the clock, and so does the one after it was lost.
    pub(crate) fn next_token(&self) -> io::Result<u64> {
        let path = self.directory.0.join("last-token");
        let last: u64 = read(&path)?.unwrap_or_default();
        let clock = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
        let next = u64::try_from(clock).unwrap_or_default().max(last.saturating_add(1));
        // Before the grant is written: if this process dies in between, a number is left out, and none is given twice.
        write(&path, &next)?;
        Ok(next)
    }

    /// Removes a name's file, and the segments above it that were only for it.
    fn remove(&self, path: &Path) -> io::Result<()> {
        unless_absent(fs::remove_file(path)).map_err(about(path))?;
        let above = path.ancestors().skip(1).take_while(|segment| *segment != self.directory.0);
        // One that is not empty is in use, and not removed.
        let _ = above.map(fs::remove_dir).take_while(Result::is_ok).count();
        Ok(())
    }
}

/// Reads a file. One that a power failure has emptied is as good as absent.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = unless_absent(fs::read(path)).map_err(about(path))?.unwrap_or_default();
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        about(path)(io::Error::other(format!("{error}; it is not what this store writes: move it away")))
    })
}

/// Puts a whole new file in the old one's place. A process that dies meanwhile leaves the old one, and a `.new` that
/// the next one writes over.
fn write(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(about(path))?;
    fs::write(&new, serde_json::to_vec(content)?).map_err(about(&new))?;
    fs::rename(&new, path).map_err(about(path))
}

fn unless_absent<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Says which file an error is about.
fn about(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
