//! The resources that the locks protect: a number for each, behind a fence.

use crate::{
    FencedRegister, Refused,
    judge::{Recorder, What},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use tenure_core::{Token, async_trait};

/// The resources that the locks protect, as a worker reaches them.
#[async_trait]
pub(super) trait Resource: Send + Sync {
    /// Reads the number of this name; `None` when the token is refused.
    async fn read(&self, lane: &str, name: &str, token: Token) -> Option<u64>;

    /// Writes the number of this name, one more than it was `over`; whether the token was accepted.
    async fn write(&self, lane: &str, name: &str, token: Token, over: u64) -> bool;
}

/// The numbers themselves. They take the notes, so their order is right.
#[derive(Clone)]
pub(super) struct Shelf {
    registers: Arc<Mutex<HashMap<String, FencedRegister>>>,
    recorder: Recorder,
}

impl Shelf {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { registers: Arc::default(), recorder }
    }

    fn access<T>(
        &self,
        lane: &str,
        name: &str,
        access: impl FnOnce(&FencedRegister) -> Result<(T, What), Refused>,
    ) -> Option<T> {
        // Held while the note is taken.
        let mut registers = self.registers.lock().unwrap_or_else(PoisonError::into_inner);
        match access(registers.entry(name.to_owned()).or_default()) {
            Ok((answer, what)) => {
                self.recorder.note(lane, what);
                Some(answer)
            }
            Err(Refused { shown, greatest }) => {
                let (name, token, greatest) = (name.to_owned(), shown.get(), greatest.get());
                self.recorder.note(lane, What::Refused { name, token, greatest });
                None
            }
        }
    }
}

#[async_trait]
impl Resource for Shelf {
    async fn read(&self, lane: &str, name: &str, token: Token) -> Option<u64> {
        self.access(lane, name, |register| {
            let value = register.read(token)?;
            Ok((value, What::Reads { name: name.to_owned(), token: token.get(), value }))
        })
    }

    async fn write(&self, lane: &str, name: &str, token: Token, over: u64) -> bool {
        let written = self.access(lane, name, |register| {
            let value = over + 1;
            register.write(token, value)?;
            Ok(((), What::Writes { name: name.to_owned(), token: token.get(), over, value }))
        });
        written.is_some()
    }
}
