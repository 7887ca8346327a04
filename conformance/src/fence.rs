//! A resource that checks fencing tokens.

use std::{
    error::Error,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tenure_core::Token;

/// A number in memory that only the newest holder may write: it remembers the greatest token that it was shown, and
/// refuses a smaller one.
///
/// It is the protected resource of the suite's cases, and a pattern for your own. Reads show their token too: after
/// one, an older holder's write would be based on an outdated value.
///
/// Clones are the same register.
///
/// # Examples
///
/// ```
/// use tenure_conformance::FencedRegister;
/// use tenure_core::Token;
///
/// let register = FencedRegister::new();
/// let (older, newer) = (Token::new(7).unwrap(), Token::new(8).unwrap());
/// let seen = register.read(older)?;
/// register.write(newer, register.read(newer)? + 1)?;
/// assert!(register.write(older, seen + 1).is_err(), "it would undo the newer holder's write");
/// assert_eq!((register.value(), register.writes(), register.refused()), (1, 1, 1));
/// # Ok::<(), tenure_conformance::Refused>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FencedRegister(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    greatest: Option<Token>,
    value: u64,
    writes: u64,
    refused: u64,
}

impl State {
    fn check(&mut self, shown: Token) -> Result<(), Refused> {
        match self.greatest {
            Some(greatest) if shown < greatest => {
                self.refused += 1;
                Err(Refused { shown, greatest })
            }
            _ => {
                self.greatest = Some(shown);
                Ok(())
            }
        }
    }
}

impl FencedRegister {
    /// Makes a register that is 0 and has seen no token.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the number.
    ///
    /// # Errors
    ///
    /// [`Refused`] if a greater token was shown before.
    pub fn read(&self, token: Token) -> Result<u64, Refused> {
        let mut state = self.state();
        state.check(token)?;
        Ok(state.value)
    }

    /// Writes the number.
    ///
    /// # Errors
    ///
    /// [`Refused`] if a greater token was shown before.
    pub fn write(&self, token: Token, value: u64) -> Result<(), Refused> {
        let mut state = self.state();
        state.check(token)?;
        state.value = value;
        state.writes += 1;
        Ok(())
    }

    /// Returns the number, without a token.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.state().value
    }

    /// Returns how often it was written.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Returns how many requests were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.state().refused
    }

    /// Returns how many updates were lost, if every writer writes what it read plus one: each write then counts once,
    /// unless two were based on the same value.
    #[must_use]
    pub fn lost_updates(&self) -> u64 {
        let state = self.state();
        state.writes.saturating_sub(state.value)
    }
}

/// The token is smaller than the greatest that the resource was shown: another holder came in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The token that was shown.
    pub shown: Token,
    /// The greatest one before.
    pub greatest: Token,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shown, greatest } = self;
        write!(f, "token {shown} is refused: a holder with token {greatest} has been here")
    }
}

impl Error for Refused {}
