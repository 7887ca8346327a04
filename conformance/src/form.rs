//! The forms in which a name can be locked.

use crate::check::Stop;
use std::{fmt, str::FromStr};
use tenure_core::{Lock, Locks};

/// A form in which a name can be locked. Groups that are about locks in general run in several of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// [`Locks::lock`].
    #[default]
    Lock,
    /// The readers' side of [`Locks::rw`].
    Reader,
    /// The writers' side of [`Locks::rw`].
    Writer,
    /// One permit of [`Locks::semaphore`], with this many permits.
    Permit(u32),
    /// All permits of such a semaphore.
    AllPermits(u32),
}

impl Form {
    /// The lock of this name in this form.
    pub fn of(self, locks: &Locks, name: impl AsRef<str>) -> Lock {
        match self {
            Self::Lock => locks.lock(name),
            Self::Reader => locks.rw(name).read(),
            Self::Writer => locks.rw(name).write(),
            Self::Permit(of) => locks.semaphore(name, of).permit(),
            Self::AllPermits(of) => locks.semaphore(name, of).permits(of),
        }
    }

    /// The form that cannot be held beside this one, nor beside anything else.
    #[must_use]
    pub const fn rival(self) -> Self {
        match self {
            Self::Lock => Self::Lock,
            Self::Reader | Self::Writer => Self::Writer,
            Self::Permit(of) | Self::AllPermits(of) => Self::AllPermits(of),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("lock"),
            Self::Reader => f.write_str("reader"),
            Self::Writer => f.write_str("writer"),
            Self::Permit(of) => write!(f, "permit of {of}"),
            Self::AllPermits(of) => write!(f, "all permits of {of}"),
        }
    }
}

impl FromStr for Form {
    type Err = Stop;

    fn from_str(text: &str) -> Result<Self, Stop> {
        match text {
            "lock" => Ok(Self::Lock),
            "reader" => Ok(Self::Reader),
            "writer" => Ok(Self::Writer),
            _ => match (text.strip_prefix("permit of "), text.strip_prefix("all permits of ")) {
                (Some(of), _) => Ok(Self::Permit(of.parse()?)),
                (None, Some(of)) => Ok(Self::AllPermits(of.parse()?)),
                (None, None) => Err(Stop::failed(format_args!("there is no form {text:?}"))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_read_as_written() {
        for form in [Form::Lock, Form::Reader, Form::Writer, Form::Permit(3), Form::AllPermits(3)] {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        assert!("permit of x".parse::<Form>().is_err());
    }
}
