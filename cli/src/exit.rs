//! How `tenure` ends: its exit codes and its messages, in one place.

use crate::{
    people::plain,
    stderr::{self, Volume, detail, say},
};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use nix::sys::signal::Signal;
use std::{
    env,
    error::Error as _,
    io::{self, Write},
    process::{ExitCode, ExitStatus},
};
use tenure::{Error, Holder};

/// `show` and `release`: the lock is free. `latch show`: there is no such latch.
pub(crate) const NOT_HELD: u8 = 1;
/// Bad input, `EX_USAGE` of `sysexits.h`.
pub(crate) const USAGE: u8 = 64;
/// The store is unavailable or failed, `EX_UNAVAILABLE`.
const UNAVAILABLE: u8 = 69;
/// The system refused something: a process, a pipe; `EX_IOERR`.
pub(crate) const SYSTEM: u8 = 74;
/// The lock was not acquired in time, `EX_TEMPFAIL`: the next try may succeed.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost while the command ran.
const LOST: u8 = 79;
/// The command exists but cannot be run, as in a shell.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command, as in a shell.
const NOT_FOUND: u8 = 127;
/// Ended by a signal, as in a shell: this plus the signal's number.
const SIGNALLED: i32 = 128;

/// Why `tenure` ends without the command's own exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    Usage(String),
    /// An error of a lock or its store.
    Lock(Error),
    /// Another failure, with a line that says more.
    Noted(Box<Failure>, String),
    /// The lock is not free; these hold it.
    Busy(String, Vec<Holder>),
    /// Another failure, with an exit code that the user chose.
    Chosen(u8, Box<Failure>),
    /// The loss was reported when it happened.
    Lost,
    /// A signal came while nothing ran yet.
    Signal(i32),
    /// The system refused.
    System(String, io::Error),
}

impl Failure {
    pub(crate) fn system(text: impl Into<String>, error: io::Error) -> Self {
        Self::System(text.into(), error)
    }

    /// Ends with `chosen` if this says that the lock was not acquired in time. All other failures keep their codes.
    pub(crate) fn if_busy(self, chosen: u8) -> Self {
        if self.code() == BUSY { Self::Chosen(chosen, Box::new(self)) } else { self }
    }

    /// Ends with 69 if a test lock of `ping` or `bench` was busy or lost: the store has failed.
    pub(crate) fn of_store(self) -> Self {
        if matches!(self.code(), BUSY | LOST) { Self::Chosen(UNAVAILABLE, Box::new(self)) } else { self }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Chosen(code, _) => *code,
            Self::Noted(failure, _) => failure.code(),
            Self::Usage(_) => USAGE,
            Self::Busy(..) => BUSY,
            Self::Lost => LOST,
            Self::Signal(number) => signalled(*number),
            Self::System(..) => SYSTEM,
            Self::Lock(error) => match error {
                Error::Timeout { .. } => BUSY,
                Error::Lost { .. } => LOST,
                Error::InvalidName(_) | Error::InvalidOption { .. } | Error::InvalidUrl { .. } => USAGE,
                _ => UNAVAILABLE,
            },
        }
    }

    /// Prints it on stderr, and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        self.explain();
        ExitCode::from(self.code())
    }

    fn explain(&self) {
        match self {
            // With `--quiet`, a failure whose chosen code is 0 is no error.
            Self::Chosen(0, _) if stderr::volume() == Volume::Errors => {}
            Self::Chosen(_, failure) => failure.explain(),
            Self::Noted(failure, note) => {
                failure.explain();
                detail(note);
            }
            Self::Usage(text) => say(text),
            Self::Lock(error) => explain(error),
            Self::Busy(text, holders) => {
                say(text);
                for holder in holders {
                    detail(&format!("held by {holder}"));
                }
            }
            // Ctrl-C, and the end of a terminal, need no explanation.
            Self::Signal(number) if *number == Signal::SIGTERM as i32 => {
                if stderr::volume() > Volume::Errors {
                    say("stopped by SIGTERM");
                }
            }
            Self::Lost | Self::Signal(_) => {}
            Self::System(text, error) => {
                say(text);
                detail(&format!("because: {error}"));
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

/// Prints an error and its causes on stderr.
pub(crate) fn explain(error: &Error) {
    say(&error.to_string());
    if matches!(error, Error::InvalidUrl { .. }) {
        detail("see: tenure help urls");
    }
    causes(Some(error));
}

/// Prints the causes of an error on stderr.
pub(crate) fn causes(error: Option<&Error>) {
    for cause in error.into_iter().flat_map(Error::causes) {
        // Some client libraries put it on several lines.
        let cause = cause.split_whitespace().collect::<Vec<_>>().join(" ");
        detail(&format!("because: {cause}"));
    }
}

/// Prints on stdout. A closed pipe, as after `head`, is not a failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::system("cannot write to stdout", error))
        }
        _ => Ok(()),
    }
}

/// Exits after a clap error. `--help` ends here too.
pub(crate) fn not_understood(error: &clap::Error) -> ExitCode {
    if let (Some(ContextValue::String(option)), Some(cause)) =
        (error.get(ContextKind::InvalidArg), error.source())
    {
        // Our own errors are complete, and contain no text that could upset a terminal.
        match option.split(' ').next() {
            Some(option) if option.starts_with("--") => say(&format!("{option}: {cause}")),
            _ => say(&cause.to_string()),
        }
    } else if lacks_only_a_command(error) {
        let what = if has_dashes() { "command after \"--\"" } else { "\"-- COMMAND\"" };
        say(&format!("missing {what}; write NAME -- COMMAND"));
    } else if let Some(word) = word_of_a_command(error) {
        say(&format!("unexpected argument {word:?}; write NAME -- COMMAND"));
    } else if let Some(text) = error.to_string().strip_prefix("error: ") {
        say(&in_our_form(text));
    } else {
        // Nothing is held yet, so this may block.
        return match error.print() {
            // A help text that is not read to its end is not a failure.
            Err(failed) if !error.use_stderr() && failed.kind() != io::ErrorKind::BrokenPipe => {
                Failure::system("cannot write to stdout", failed).report()
            }
            _ if error.use_stderr() => ExitCode::from(USAGE),
            _ => ExitCode::SUCCESS,
        };
    }
    ExitCode::from(USAGE)
}

fn has_dashes() -> bool {
    env::args_os().any(|word| word == "--")
}

/// The text of a clap error without the tip to pass a misspelt option as a value, and without characters that could
/// upset a terminal.
fn in_our_form(text: &str) -> String {
    let lines = text.trim_end().lines().filter(|line| !line.contains(" as a value, use '-- "));
    let text = lines.map(plain).collect::<Vec<_>>().join("\n");
    text.replace("\n\n\n", "\n\n")
}

/// The argument that is probably part of a command without `--` before it.
fn word_of_a_command(error: &clap::Error) -> Option<&str> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    let is_known = error.get(ContextKind::SuggestedArg).is_some() || has_dashes();
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word))
            if error.kind() == ErrorKind::UnknownArgument && usage.contains("-- <COMMAND>") && !is_known =>
        {
            Some(word)
        }
        _ => None,
    }
}

/// Whether there is a name and no command: `flock` and `timeout` need no `--` before it.
fn lacks_only_a_command(error: &clap::Error) -> bool {
    let missing = [ContextValue::Strings(vec!["<COMMAND>...".to_owned()])];
    error.kind() == ErrorKind::MissingRequiredArgument
        && error.get(ContextKind::InvalidArg).is_some_and(|lacks| missing.contains(lacks))
}

/// The command could not be started.
pub(crate) fn not_started(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// The exit code of a command that ended: its own, or the one that a shell gives for a signal.
pub(crate) fn ended(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or_else(|| signalled(status.signal().unwrap_or_default())))
}

fn signalled(number: i32) -> u8 {
    u8::try_from(SIGNALLED + number).unwrap_or(u8::MAX)
}
