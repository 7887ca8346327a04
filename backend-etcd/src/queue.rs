//! The queue of keys that contend for one name: the holders, and those who wait.

use crate::card::Card;
use etcd_client::KeyValue;
use tenure_core::Mode;

/// One contender.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: Vec<u8>,
    pub(crate) mode: Mode,
    /// The revision that made its key: its place in the queue, and its token.
    pub(crate) created: i64,
    /// The revision that last changed its value.
    pub(crate) modified: i64,
    pub(crate) lease: i64,
    /// `None` if another program has made its key. Such a contender is exclusive.
    pub(crate) card: Option<Card>,
}

/// The contenders for a name, in the order in which they came.
///
/// A contender holds the name if it is admitted beside all before it. So the holders are first in the queue, and a waiter blocks each
/// later contender that it does not admit.
#[derive(Debug)]
pub(crate) struct Queue(Vec<Place>);

impl From<&KeyValue> for Place {
    fn from(kv: &KeyValue) -> Self {
        let (mode, card) =
            Card::read(kv.value()).map_or((Mode::Exclusive, None), |(mode, card)| (mode, Some(card)));
        let (created, modified) = (kv.create_revision(), kv.mod_revision());
        Self { key: kv.key().to_vec(), mode, created, modified, lease: kv.lease(), card }
    }
}

impl Queue {
    pub(crate) fn of(mut places: Vec<Place>) -> Self {
        places.sort_by_key(|place| place.created);
        Self(places)
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<&Place> {
        self.0.iter().find(|place| place.key == key)
    }

    /// Whether a contender behind all of these holds the name too.
    pub(crate) fn admits(&self, mode: Mode) -> bool {
        mode.admits(self.0.iter().map(|place| place.mode))
    }

    /// Refuses a number of permits that differs from that of the holders.
    pub(crate) fn agrees(&self, mode: Mode) -> Result<(), String> {
        mode.agrees_with(self.holders().iter().map(|place| place.mode))
    }

    /// The contender that a newcomer waits for; `None` if any change may admit it.
    pub(crate) fn waits_for(&self, mode: Mode) -> Option<&Place> {
        match mode {
            Mode::Shared => self.0.iter().rev().find(|place| place.mode != Mode::Shared),
            Mode::Permit { .. } => None,
            _ => self.0.last(),
        }
    }

    pub(crate) fn holders(&self) -> &[Place] {
        self.0.split_at(self.held()).0
    }

    pub(crate) fn waiters(&self) -> &[Place] {
        self.0.split_at(self.held()).1
    }

    /// How many hold the name.
    fn held(&self) -> usize {
        let holds = |at: usize| self.0[at].mode.admits(self.0[..at].iter().map(|place| place.mode));
        (0..self.0.len()).find(|at| !holds(*at)).unwrap_or(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    fn permit(take: u32, of: u32) -> Mode {
        let number = |n| NonZeroU32::new(n).unwrap();
        Mode::Permit { take: number(take), of: number(of) }
    }

    fn queue(modes: &[Mode]) -> Queue {
        let place = |(at, mode): (usize, &Mode)| Place {
            key: at.to_string().into_bytes(),
            mode: *mode,
            created: i64::try_from(at).unwrap(),
            modified: 0,
            lease: 1,
            card: None,
        };
        Queue::of(modes.iter().enumerate().map(place).rev().collect())
    }

    #[test]
    fn waiter_waits_for_the_barring_contender() {
        let (alone, reader) = (Mode::Exclusive, Mode::Shared);
        for (before, mode, expected) in [
            (&[alone][..], alone, Some("0")),
            (&[alone, alone], alone, Some("1")),
            (&[reader, reader], alone, Some("1")),
            (&[alone, reader], reader, Some("0")),
            (&[reader, alone, reader], reader, Some("1")),
            (&[permit(1, 1)], permit(1, 1), None),
        ] {
            let found = queue(before);
            let found = found.waits_for(mode).map(|place| std::str::from_utf8(&place.key).unwrap());
            assert_eq!(found, expected, "{mode:?} behind {before:?}");
        }
    }

    #[test]
    fn claim_must_agree_only_with_holders() {
        assert!(queue(&[permit(1, 4)]).agrees(permit(1, 7)).is_err());
        assert!(queue(&[Mode::Exclusive, permit(1, 4)]).agrees(permit(1, 7)).is_ok(), "no permits are held");
    }

    fn modes() -> impl Strategy<Value = Vec<Mode>> {
        let mode = prop_oneof![
            1 => Just(Mode::Exclusive),
            2 => Just(Mode::Shared),
            4 => (1..4_u32, 0..3_u32).prop_map(|(take, more)| permit(take, take + more)),
            4 => (1..4_u32).prop_map(|take| permit(take, 4)),
        ];
        proptest::collection::vec(mode, 1..12)
    }

    proptest! {
        /// For contenders that go in any order: the holders admit each other, and each waiter is told when it holds by the
        /// end of the one that it waits for.
        #[test]
        fn contenders_are_served_in_order(modes in modes(), leaves in proptest::collection::vec(any::<prop::sample::Index>(), 32)) {
            let mut all: Vec<(usize, Mode)> = modes.into_iter().enumerate().collect();
            for leaves in leaves {
                if all.is_empty() {
                    break;
                }
                let before = |at: usize| queue(&all[..at].iter().map(|(_, mode)| *mode).collect::<Vec<_>>());
                let held = before(all.len()).holders().len();
                prop_assert!(held > 0);
                for at in 0..held {
                    let others = all[..held].iter().enumerate().filter(|(other, _)| *other != at);
                    prop_assert!(all[at].1.admits(others.map(|(_, (_, mode))| *mode)));
                }
                let waits: Vec<_> = (held..all.len()).map(|at| {
                    let of = before(at);
                    let of = of.waits_for(all[at].1).map(|place| usize::try_from(place.created).unwrap());
                    (all[at].0, of.map(|of| all[of].0))
                }).collect();
                let gone = all.remove(leaves.index(all.len())).0;
                for (id, of) in waits {
                    let Some(at) = all.iter().position(|(other, _)| *other == id) else { continue };
                    let told = of.is_none_or(|of| of == gone);
                    let modes: Vec<_> = all[..at].iter().map(|(_, mode)| *mode).collect();
                    prop_assert!(told || !queue(&modes).admits(all[at].1), "{id} is not told");
                }
            }
        }
    }
}
