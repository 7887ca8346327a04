//! The ways to get a server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// How a server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// It runs already; this variable of the environment names it.
    Environment {
        /// The variable's name. Its value may hold a password.
        variable: String,
    },
    /// It was started in a container.
    Docker {
        /// The image.
        image: String,
    },
    /// It was started from a program on this machine.
    Local {
        /// The program.
        program: PathBuf,
        /// Whether its clock can be set.
        settable: bool,
    },
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment { variable } => write!(f, "named by {variable}"),
            Self::Docker { image } => write!(f, "container of {image}"),
            Self::Local { program, settable } => {
                let clock = if *settable { ", with a clock of its own" } else { "" };
                write!(f, "program {}{clock}", program.display())
            }
        }
    }
}

/// Which ways may be tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Use {
    /// Each in turn: the environment, Docker, this machine's programs.
    #[default]
    Any,
    /// Only what the environment names.
    Environment,
    /// Only containers.
    Docker,
    /// Only this machine's programs.
    Local,
    /// The same, and databases wait for the disk at each commit, as they do in earnest: for benches.
    LocalOnDisk,
    /// Like [`Local`](Self::Local), with a server whose clock can be set.
    LocalWithClock,
}

impl Use {
    /// The variable that [`from_env`](Self::from_env) reads.
    pub const VARIABLE: &'static str = "TENURE_TEST_USE";

    /// What `TENURE_TEST_USE` says, [`Use::Any`] when it is not set.
    ///
    /// # Errors
    ///
    /// Names the value when it is none of `env`, `docker`, `local`.
    pub fn from_env() -> Result<Self, String> {
        match std::env::var(Self::VARIABLE) {
            Ok(value) if !value.is_empty() => value.parse(),
            _ => Ok(Self::Any),
        }
    }

    pub(crate) fn allows(self, way: Self) -> bool {
        self == way || (self == Self::Any && !matches!(way, Self::LocalOnDisk | Self::LocalWithClock))
    }
}

impl FromStr for Use {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        match value {
            "env" => Ok(Self::Environment),
            "docker" => Ok(Self::Docker),
            "local" => Ok(Self::Local),
            _ => Err(format!("{}={value}: expected env, docker or local", Self::VARIABLE)),
        }
    }
}
