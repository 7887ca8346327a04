//! A resource that checks fencing tokens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::Token;

/// A number in memory that only the newest holder may write: it remembers the greatest token that it was shown, and
/// refuses a smaller one.
///
/// Reads show their token too: after one, an older holder's write would be based on an outdated value. Clones are the
/// same register.
#[derive(Clone, Debug, Default)]
pub(crate) struct FencedRegister(Arc<Mutex<State>>);

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
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the number.
    pub(crate) fn read(&self, token: Token) -> Result<u64, Refused> {
        let mut state = self.state();
        state.check(token)?;
        Ok(state.value)
    }

    /// Writes the number.
    pub(crate) fn write(&self, token: Token, value: u64) -> Result<(), Refused> {
        let mut state = self.state();
        state.check(token)?;
        state.value = value;
        state.writes += 1;
        Ok(())
    }

    /// Returns the number, without a token.
    pub(crate) fn value(&self) -> u64 {
        self.state().value
    }

    /// Returns how many requests were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.state().refused
    }

    /// Returns how many updates were lost, if every writer writes what it read plus one: each write then counts once,
    /// unless two were based on the same value.
    pub(crate) fn lost_updates(&self) -> u64 {
        let state = self.state();
        state.writes.saturating_sub(state.value)
    }
}

/// The token is smaller than the greatest that the resource was shown: another holder came in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {shown} is refused: a holder with token {greatest} has been here")]
pub(crate) struct Refused {
    /// The token that was shown.
    pub(crate) shown: Token,
    /// The greatest one before.
    pub(crate) greatest: Token,
}
