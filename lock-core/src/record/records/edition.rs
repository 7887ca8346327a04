//! The text under a key: a record and its version.

use super::Stored;
use crate::{
    contract::StoreError,
    record::{StoreTime, unreadable},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The content of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edition<T> {
    /// Rises with each write, and begins with the store's clock. So no two texts are the same, even if the key was
    /// removed in between.
    pub(super) edition: u64,
    pub(super) content: T,
}

/// Reads the content of `key`; `None` if there is none.
pub(super) fn parse<V, T: DeserializeOwned>(
    key: &str,
    stored: &Stored<V>,
) -> Result<Option<Edition<T>>, StoreError> {
    let Some(text) = &stored.text else { return Ok(None) };
    let parsed = serde_json::from_str(text).map(Some);
    parsed.map_err(|why| StoreError::failed(format!("the record {key:?} {}", unreadable(text, why))))
}

impl<T: Serialize> Edition<T> {
    pub(super) fn next<U>(&self, content: U, now: StoreTime) -> Edition<U> {
        Edition { edition: self.edition.saturating_add(1).max(now.as_micros()), content }
    }

    pub(super) fn text(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(StoreError::failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contract::Name,
        record::{
            LatchRecord, Record,
            tests::{CLIENTS, World, modes, steps},
        },
        store::LatchStep,
    };
    use proptest::{prelude::*, sample::Index};
    use std::{fmt::Debug, num::NonZeroU32};

    fn read<T: DeserializeOwned>(text: &str) -> Result<Edition<T>, StoreError> {
        let stored = Stored { text: Some(text.to_owned()), version: (), now: StoreTime::from_micros(0) };
        Ok(parse("key", &stored)?.expect("a text is there"))
    }

    /// The whole text is read back, and a part of it is an error.
    fn check<T>(edition: &Edition<T>, cut: Index) -> Result<(), TestCaseError>
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        let text = edition.text().unwrap();
        prop_assert_eq!(&read::<T>(&text).unwrap(), edition);
        let torn = String::from_utf8_lossy(&text.as_bytes()[..cut.index(text.len())]);
        prop_assert!(read::<T>(&torn).is_err(), "{}", torn);
        Ok(())
    }

    proptest! {
        #[test]
        fn record_is_read_as_written_and_torn_text_is_an_error(
            modes in prop::collection::vec(modes(), CLIENTS),
            history in steps(30),
            edition: u64,
            cut: Index,
        ) {
            let mut world = World::new(&modes);
            for step in history {
                world.take(step);
            }
            check(&Edition { edition, content: world.record }, cut)?;
        }

        #[test]
        fn latch_is_read_as_written_and_torn_text_is_an_error(
            parties in prop::collection::vec("\\PC{1,20}", 0..5),
            of in 1..=u32::MAX,
            edition: u64,
            cut: Index,
        ) {
            let mut latch = LatchRecord::default();
            for party in parties {
                let of = NonZeroU32::new(of).unwrap();
                latch.step(&LatchStep::CountDown { party: Name::new(party).unwrap(), of });
            }
            check(&Edition { edition, content: latch }, cut)?;
        }

        #[test]
        fn text_of_another_program_is_an_error(text in prop_oneof![
            any::<String>(),
            "[\\[{]{0,200}",
            "\\{(\"(edition|content|token|of|held)\":(-?[0-9]{1,25}|null|\\{\\}|\\[\\]),?){0,3}\\}",
        ]) {
            let may_be_ours = text.contains("edition") && text.contains("content");
            prop_assert!(may_be_ours || read::<Record>(&text).is_err() && read::<LatchRecord>(&text).is_err());
            let _ = (read::<Record>(&text), read::<LatchRecord>(&text));
        }
    }
}
