//! A clock of a server's own, which can be set: libfaketime adds an offset from a file to the machine's time.

use async_trait::async_trait;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tenure_conformance::saboteur::{Hurt, Injection, Sabotage, SabotageError, Saboteur};

/// The file in a server's directory that has the offset, in seconds.
const OFFSET: &str = "clock";

/// The library, as Debian installs it.
pub(crate) fn library() -> Result<PathBuf, String> {
    let place = format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH);
    let library = PathBuf::from(place);
    if library.is_file() { Ok(library) } else { Err("no libfaketime on this machine".to_owned()) }
}

/// The clock of a process that [`give`](Self::give) prepared: that of a store in files, whose clock is the machine's.
#[derive(Debug)]
pub struct OwnClock(pub PathBuf);

impl OwnClock {
    /// Gives the command a clock of its own, which a file in this directory sets.
    ///
    /// # Errors
    ///
    /// Why it cannot have one here.
    pub fn give(&self, command: &mut Command) -> Result<(), String> {
        give(command, &self.0).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Saboteur for OwnClock {
    fn server(&self) -> String {
        "a process with a clock of its own".to_owned()
    }

    fn can(&self, hurt: Hurt) -> bool {
        matches!(hurt, Hurt::ClockAhead | Hurt::ClockBack)
    }

    async fn inject(&self, injection: Injection) -> Sabotage {
        let failed = |error: io::Error| SabotageError::Failed {
            what: injection.to_string(),
            server: self.server(),
            source: error.into(),
        };
        if self.can(injection.hurt) {
            set(&self.0, injection).map_err(failed)
        } else {
            self.cannot(injection.hurt)
        }
    }

    async fn undo(&self, _: Hurt) -> Sabotage {
        Ok(())
    }

    async fn heal(&self) -> Sabotage {
        Ok(())
    }
}

/// Gives a command that serves `home` its clock.
///
/// jemalloc, with which Debian's Redis allocates, asks for the time while libfaketime prepares itself, and the program
/// hangs. With the C library before it in the list, that one allocates.
pub(crate) fn give(command: &mut Command, home: &Path) -> io::Result<()> {
    let library = library().map_err(io::Error::other)?;
    if !home.join(OFFSET).exists() {
        write(home, 0.0)?;
    }
    command
        .env("LD_PRELOAD", format!("{}:libc.so.6", library.display()))
        .env("FAKETIME_TIMESTAMP_FILE", home.join(OFFSET))
        // The file counts at once, and not after ten seconds.
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Ok(())
}

/// Sets the clock of the server in `home` ahead or back.
pub(crate) fn set(home: &Path, Injection { hurt, by, .. }: Injection) -> io::Result<()> {
    let offset: f64 = fs::read_to_string(home.join(OFFSET))?.trim().parse().map_err(io::Error::other)?;
    let by = if hurt == Hurt::ClockBack { -by.as_secs_f64() } else { by.as_secs_f64() };
    write(home, offset + by)
}

/// In one piece: the server may read it at any time.
fn write(home: &Path, offset: f64) -> io::Result<()> {
    let new = home.join("clock.new");
    fs::write(&new, format!("{offset:+.3}\n"))?;
    fs::rename(new, home.join(OFFSET))
}
