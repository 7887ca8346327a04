//! Reads a row, decides, and writes the row unless another client was faster.

use super::{
    lease_table::LeaseTable,
    record_rows::{Change, Seen},
};
use crate::lane::Again;
use tenure_core::{Moment, StoreError};

/// The client's knowledge of a row before a decision.
pub(crate) enum Basis {
    Nothing,
    /// It was read for this request.
    Read(Seen),
    /// The row's content unless another client has changed it: good enough for writing the row, because the write
    /// checks it, and for nothing else.
    Guessed(Seen),
}

/// The table, for reading rows and writing them back. Whether a write may be repeated automatically depends on what its
/// answer is for.
pub(crate) struct Via<'t, T>(pub(crate) &'t T, pub(crate) Again);

impl<T: LeaseTable> Via<'_, T> {
    /// Reads the row under `key`.
    pub(crate) async fn read(&self, key: &str) -> Result<Seen, StoreError> {
        let seen = self.0.read(key).await?;
        if let Some(known) = self.0.known() {
            known.read(key, &seen);
        }
        Ok(seen)
    }

    async fn swap(&self, key: &str, from: &Seen, to: &Change, again: Again) -> Result<bool, StoreError> {
        let written = self.0.swap(key, from, to, again).await?;
        if written && let Some(known) = self.0.known() {
            if to.lasting {
                known.wrote(key, from, &to.row);
            } else {
                known.wrote_anew(key);
            }
        }
        Ok(written)
    }

    /// Writes a decision about a guessed row, in one try: a second one could meet a server that has lost the row.
    /// `None` if the row must be read.
    async fn try_guess<R>(
        &self,
        key: &str,
        guess: &Seen,
        decided: Result<(R, Option<Change>), StoreError>,
    ) -> Result<Option<R>, StoreError> {
        let Ok((outcome, Some(to))) = decided else { return Ok(None) };
        let written = self.swap(key, guess, &to, Again::No).await;
        if let (false, Some(known)) = (matches!(written, Ok(true)), self.0.known()) {
            known.missed(key);
        }
        match written {
            Ok(written) => Ok(written.then_some(outcome)),
            Err(error) if error.is_unavailable() && self.1 == Again::Safe => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the row under `key`, unless it is known already, and writes the decision. Repeats this until no other
    /// client is faster.
    pub(crate) async fn settle<R: Send>(
        &self,
        key: &str,
        basis: Basis,
        mut decide: impl FnMut(&Seen) -> Result<(R, Option<Change>), StoreError> + Send,
    ) -> Result<R, StoreError> {
        let mut seen = match basis {
            Basis::Nothing => None,
            Basis::Read(seen) => Some(seen),
            Basis::Guessed(guess) => {
                let decided = decide(&guess);
                if let Some(outcome) = self.try_guess(key, &guess, decided).await? {
                    return Ok(outcome);
                }
                None
            }
        };
        let give_up = Moment::now() + self.0.patience();
        loop {
            let from = match seen.take() {
                Some(seen) => seen,
                None => self.read(key).await?,
            };
            let (outcome, to) = decide(&from)?;
            let Some(to) = to else { return Ok(outcome) };
            if self.swap(key, &from, &to, self.1).await? {
                return Ok(outcome);
            }
            if give_up.has_passed() {
                return Err(StoreError::unavailable("other clients kept changing the row first"));
            }
        }
    }
}
