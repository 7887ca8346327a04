//! A latch as a value.

use crate::{
    contract::Name,
    store::{LatchState, LatchStep},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, num::NonZeroU32};

/// All that a store knows of one latch.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use tenure_core::{LatchStep, Name, record::LatchRecord};
///
/// let mut latch = LatchRecord::default();
/// let party = Name::new("m1").unwrap();
/// let step = LatchStep::CountDown { party, of: NonZeroU32::new(2).unwrap() };
/// // Sent twice, counted once.
/// latch.step(&step);
/// assert_eq!(latch.step(&step).missing(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatchRecord {
    /// How many parties it waits for; 0 if there is no such latch.
    of: u32,
    counted: BTreeSet<String>,
}

impl LatchRecord {
    /// Takes the step, and returns the latch's state after it. A client that expects another number of parties changes
    /// nothing.
    pub fn step(&mut self, step: &LatchStep) -> LatchState {
        match step {
            LatchStep::CountDown { party, of } => self.count_down(party, *of),
            LatchStep::Remove => *self = Self::default(),
            LatchStep::Look => {}
        }
        LatchState { of: self.of, counted: u32::try_from(self.counted.len()).unwrap_or(u32::MAX) }
    }

    /// Whether there is no such latch.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.of == 0
    }

    fn count_down(&mut self, party: &Name, of: NonZeroU32) {
        if self.is_absent() {
            self.of = of.get();
        }
        if self.of == of.get() {
            self.counted.insert(party.to_string());
        }
    }
}
