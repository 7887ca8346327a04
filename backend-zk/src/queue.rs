//! The queue of nodes that contend for one name: the holders, and the node or room that each waiter waits for.

use crate::{
    node::{
        contender::{contends, token_of},
        order::{offset, tells_nothing},
    },
    session::Live,
};
use futures_util::future::try_join_all;
use tenure_core::Mode;
use zookeeper_client::Error;

/// One node in the queue.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) node: String,
    /// The mode in its name. The first may have been downgraded, which only its data tell.
    pub(crate) mode: Mode,
}

/// The nodes that contend for a name, in the order in which they came.
///
/// A node holds the name if it is admitted beside all nodes before it. So the holders are first in the queue, and a
/// waiter keeps out all nodes behind it that it would not admit.
#[derive(Debug)]
pub(crate) struct Queue(Vec<Place>);

/// The node or room that a claim waits for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor<'a> {
    /// Nothing: it holds the name.
    Nothing,
    /// This node: until it is gone or has changed.
    Node {
        node: &'a str,
        /// Whether the end of that node alone makes it hold the name: no other relevant node is before it, and new ones
        /// come behind it.
        last: bool,
        /// Whether that node holds the name, and its data may say that it was downgraded, which admits this reader.
        may_read: bool,
    },
    /// It is next for permits, and several hold some: the end of any of them may make room.
    Room,
}

impl Queue {
    /// The position of `node`.
    pub(crate) fn position(&self, node: &str) -> Option<usize> {
        self.0.iter().position(|place| place.node == node)
    }

    /// The node or room that the claim at that position waits for.
    pub(crate) fn waits_for(&self, at: usize) -> WaitsFor<'_> {
        let Some(before) = at.checked_sub(1).filter(|_| !self.holds(at)) else { return WaitsFor::Nothing };
        let behind = |before: usize, last: bool| WaitsFor::Node {
            node: &self.0[before].node,
            last,
            may_read: before == 0 && self.0[at].mode == Mode::Shared && self.0[0].mode == Mode::Exclusive,
        };
        match self.0[at].mode {
            // Once the nearest node that is not a reader's is gone, only readers are before it. That is sufficient only
            // if that node is the first in the queue: before a later one there may be a reader that becomes a writer
            // meanwhile.
            Mode::Shared => {
                let other = self.0[..at].iter().rposition(|place| place.mode != Mode::Shared);
                behind(other.unwrap_or(before), other == Some(0))
            }
            // It must look in any case whether another one behind it waits for permits.
            Mode::Permit { .. } if before > 0 && self.is_permit(before) && self.holds(before) => {
                WaitsFor::Room
            }
            Mode::Permit { .. } => behind(before, false),
            // A reader's node is also deleted when the reader becomes a writer: another node then replaces it.
            _ => behind(before, before == 0 && self.0[0].mode != Mode::Shared),
        }
    }

    /// Whether a permit is right behind that position, and may wait to hear that the one there has been admitted.
    pub(crate) fn is_awaited(&self, at: usize) -> bool {
        self.is_permit(at) && self.is_permit(at + 1)
    }

    /// Refuses a number of permits that differs from that of the holders.
    pub(crate) fn agrees(&self, at: usize) -> Result<(), String> {
        let mode = self.0[at].mode;
        let others = self.0[..at].iter().enumerate();
        let mut differing =
            others.filter_map(|(at, other)| Some((at, mode.agrees_with([other.mode]).err()?)));
        // Holders come first, so only the first one that differs needs to be checked for whether it holds.
        match differing.next() {
            Some((other, why)) if self.holds(other) => Err(why),
            _ => Ok(()),
        }
    }

    /// The holders of the name.
    pub(crate) fn holders(&self) -> &[Place] {
        self.split().0
    }

    /// The waiters, behind the holders.
    pub(crate) fn waiters(&self) -> &[Place] {
        self.split().1
    }

    fn split(&self) -> (&[Place], &[Place]) {
        let places: Vec<_> = (0..self.0.len()).collect();
        self.0.split_at(places.partition_point(|at| self.holds(*at)))
    }

    /// Records that the first node was downgraded, as its data say.
    pub(crate) fn first_reads(&mut self) {
        if let Some(first) = self.0.first_mut() {
            first.mode = Mode::Shared;
        }
    }

    pub(crate) fn first(&self) -> Option<&Place> {
        self.0.first()
    }

    /// The reader right behind the first, which also holds if it came before the first became a writer.
    pub(crate) fn reader_behind_first(&self) -> Option<&str> {
        self.0.get(1).filter(|next| next.mode == Mode::Shared).map(|next| next.node.as_str())
    }

    fn is_permit(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|place| matches!(place.mode, Mode::Permit { .. }))
    }

    fn holds(&self, at: usize) -> bool {
        self.0[at].mode.admits(self.0[..at].iter().map(|place| place.mode))
    }
}

impl Live {
    /// The queue of `lock`, whose node has these children. `around` is a number close to all of theirs.
    pub(crate) async fn queue(
        &self,
        lock: &str,
        children: &[String],
        around: Option<i32>,
    ) -> Result<Queue, Error> {
        let contenders: Vec<_> = numbered(children).collect();
        if contenders.iter().any(|(_, number)| tells_nothing(*number)) {
            return self.queue_by_age(lock, contenders).await;
        }
        Ok(queue_by_number(contenders, around))
    }

    /// The queue by the age of the claims, where the numbers give no order.
    ///
    /// The ages take more requests. A reader that is gone meanwhile may have become a writer, which is not in the list;
    /// then this lists the queue again.
    async fn queue_by_age(&self, lock: &str, mut contenders: Vec<(Place, i32)>) -> Result<Queue, Error> {
        loop {
            let aged = contenders.into_iter().map(|(place, _)| async move {
                let made = self.client.check_stat(&format!("{lock}/{}", place.node)).await?;
                let came = token_of(&place.node).and_then(|token| i64::try_from(token.get()).ok());
                Ok::<_, Error>((made.map(|made| came.unwrap_or(made.czxid)), place))
            });
            let aged = try_join_all(aged).await?;
            if !aged.iter().any(|(came, place)| came.is_none() && place.mode == Mode::Shared) {
                let there = aged.into_iter().filter_map(|(came, place)| Some((came?, place)));
                return Ok(in_order(there.collect()));
            }
            let children = match self.client.list_children(lock).await {
                Err(Error::NoNode) => Vec::new(),
                listed => listed?,
            };
            contenders = numbered(&children).collect();
        }
    }
}

/// The nodes that contend, with their numbers.
fn numbered(children: &[String]) -> impl Iterator<Item = (Place, i32)> {
    children.iter().filter_map(|node| {
        let (mode, number) = contends(node)?;
        Some((Place { node: node.clone(), mode }, number))
    })
}

fn queue_by_number(contenders: Vec<(Place, i32)>, around: Option<i32>) -> Queue {
    let around = around.or_else(|| contenders.first().map(|(_, number)| *number)).unwrap_or(0);
    let places = contenders.into_iter().map(|(place, number)| (offset(number, around).into(), place));
    in_order(places.collect())
}

fn in_order(mut places: Vec<(i64, Place)>) -> Queue {
    places.sort_by(|(one, place), (other, next)| (one, &place.node).cmp(&(other, &next.node)));
    Queue(places.into_iter().map(|(_, place)| place).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    const ALONE: Mode = Mode::Exclusive;
    const READER: Mode = Mode::Shared;

    fn permit(take: u32, of: u32) -> Mode {
        let number = |n| NonZeroU32::new(n).unwrap();
        Mode::Permit { take: number(take), of: number(of) }
    }

    fn queue(modes: &[Mode]) -> Queue {
        Queue(
            modes.iter().enumerate().map(|(at, mode)| Place { node: at.to_string(), mode: *mode }).collect(),
        )
    }

    /// The node or room that the last of them waits for.
    fn waits_for(modes: &[Mode]) -> Option<(usize, bool, bool)> {
        let queue = queue(modes);
        match queue.waits_for(modes.len() - 1) {
            WaitsFor::Nothing => None,
            WaitsFor::Room => Some((usize::MAX, false, false)),
            WaitsFor::Node { node, last, may_read } => Some((node.parse().unwrap(), last, may_read)),
        }
    }

    #[test]
    fn waiter_waits_for_the_barring_node_or_for_room() {
        let one = permit(1, 2);
        for (modes, expected) in [
            (&[ALONE][..], None),
            (&[ALONE, ALONE], Some((0, true, false))),
            (&[ALONE, ALONE, ALONE], Some((1, false, false))),
            // A reader's node may make way for a writer's.
            (&[READER, ALONE], Some((0, false, false))),
            (&[READER, READER, ALONE], Some((1, false, false))),
            (&[READER, READER, READER], None),
            (&[ALONE, READER], Some((0, true, true))),
            (&[ALONE, READER, READER], Some((0, true, true))),
            (&[READER, ALONE, READER], Some((1, false, false))),
            (&[ALONE, ALONE, READER], Some((1, false, false))),
            (&[one, READER], Some((0, true, false))),
            (&[one, one], None),
            (&[one, one, one], Some((usize::MAX, false, false))),
            (&[one, one, one, one], Some((2, false, false))),
            (&[permit(2, 2), one], Some((0, false, false))),
            (&[ALONE, one], Some((0, false, false))),
            (&[READER, one], Some((0, false, false))),
            (&[one, ALONE, one], Some((1, false, false))),
        ] {
            assert_eq!(waits_for(modes), expected, "{modes:?}");
        }
    }

    #[test]
    fn claim_must_agree_only_with_holders() {
        assert!(queue(&[permit(1, 4), permit(1, 7)]).agrees(1).is_err());
        assert!(queue(&[permit(1, 4), permit(1, 4), permit(1, 7)]).agrees(2).is_err());
        assert!(queue(&[permit(4, 4), permit(1, 4)]).agrees(1).is_ok());
        assert!(queue(&[ALONE, permit(1, 4), permit(1, 7)]).agrees(2).is_ok(), "no permits are held");
    }

    /// Nodes of any name, of which some are nearly a contender's.
    fn nodes() -> impl Strategy<Value = Vec<String>> {
        let own = prop_oneof![
            Just("x-72057594-".to_owned()),
            Just("0f3a__lock__".to_owned()),
            Just("0f3a__rlock__".to_owned()),
            Just("_c_7a8d1c2e-9c3b-4a1e-8d5c-9d1f6d7b1c11-__READ__".to_owned()),
            (0..3_u32, 0..3_u32).prop_map(|(take, of)| {
                format!("_c_7a8d1c2e-9c3b-4a1e-8d5c-9d1f6d7b1c11-permit-{take}-of-{of}-lock-")
            }),
            ".{0,6}",
        ];
        let number = prop_oneof![(-3..9_i32).prop_map(|n| format!("{n:010}")), "-{0,2}[0-9]{8,11}", ".{0,9}"];
        proptest::collection::vec((own, number).prop_map(|(own, number)| own + &number), 0..9)
    }

    proptest! {
        /// For any nodes under a lock's node: each contender has its place, and the claim holds only beside all before
        /// its own.
        #[test]
        fn foreign_nodes_are_not_overtaken(mut nodes in nodes(), number in 0..9_i32, at in any::<prop::sample::Index>()) {
            let own = format!("_c_27d6a1ac-9c3b-4a1e-8d5c-9d1f6d7b1c11-lock-{number:010}");
            nodes.insert(at.index(nodes.len() + 1), own.clone());
            let before = numbered(&nodes).filter(|(place, theirs)| {
                (offset(*theirs, number), &place.node) < (0, &own)
            });
            let before = before.count();
            let contenders: Vec<_> = numbered(&nodes).collect();
            let count = contenders.len();
            let queue = queue_by_number(contenders, Some(number));
            prop_assert_eq!(queue.0.len(), count);
            prop_assert_eq!(queue.position(&own), Some(before));
            for at in 0..count {
                let _ = queue.agrees(at);
                let behind = !matches!(queue.waits_for(at), WaitsFor::Nothing);
                prop_assert_eq!(behind, at >= queue.holders().len(), "{:?}", queue);
            }
            prop_assert_eq!(queue.holders().len() + queue.waiters().len(), count);
            prop_assert_eq!(queue.waits_for(before) == WaitsFor::Nothing, before == 0);
            let seen = queue_by_number(numbered(&nodes).collect(), None);
            prop_assert!(!seen.holders().is_empty(), "it looks free: {seen:?}");
        }
    }

    fn modes() -> impl Strategy<Value = Vec<Mode>> {
        let mode = prop_oneof![
            1 => Just(ALONE),
            2 => Just(READER),
            4 => (1..4_u32, 0..3_u32).prop_map(|(take, more)| permit(take, take + more)),
            4 => (1..4_u32).prop_map(|take| permit(take, 4)),
        ];
        proptest::collection::vec(mode, 1..12)
    }

    proptest! {
        /// For nodes that go in any order: the holders admit each other, each waiter is told when it holds by the node
        /// that it waits for, and no node waits for ever.
        #[test]
        fn nodes_are_served_in_order(modes in modes(), leaves in proptest::collection::vec(any::<prop::sample::Index>(), 64)) {
            let mut queue = queue(&modes);
            for leaves in leaves {
                if queue.0.is_empty() {
                    break;
                }
                let held = queue.holders().len();
                prop_assert!(held > 0, "no node holds: {queue:?}");
                for at in 0..held {
                    let others = queue.0[..held].iter().enumerate().filter(|(other, _)| *other != at);
                    prop_assert!(queue.0[at].mode.admits(others.map(|(_, place)| place.mode)), "{queue:?}");
                }
                let waiting: Vec<_> = (held..queue.0.len())
                    .map(|at| (queue.0[at].node.clone(), told_by(&queue, at)))
                    .collect();
                let gone = queue.0.remove(leaves.index(queue.0.len())).node;
                for (node, (of, last, admitted_too)) in waiting {
                    let Some(at) = queue.position(&node) else { continue };
                    let holds = queue.waits_for(at) == WaitsFor::Nothing;
                    let told = of.contains(&gone)
                        // The node that it waits for tells it when that one is admitted.
                        || admitted_too.is_some_and(|other| queue.position(&other).is_some_and(|other| queue.waits_for(other) == WaitsFor::Nothing));
                    prop_assert!(told || !holds, "{node} is not told: {queue:?}");
                    prop_assert!(holds || !(last && of[0] == gone), "{node} takes it: {queue:?}");
                }
            }
        }
    }

    /// The nodes whose end the claim is told of, whether that is enough in itself, and the node whose admission it is
    /// told of.
    fn told_by(queue: &Queue, at: usize) -> (Vec<String>, bool, Option<String>) {
        match queue.waits_for(at) {
            WaitsFor::Nothing => unreachable!("it holds"),
            WaitsFor::Room => (queue.0[..at].iter().map(|place| place.node.clone()).collect(), false, None),
            WaitsFor::Node { node, last, .. } => {
                let other = queue.position(node).unwrap();
                (vec![node.to_owned()], last, queue.is_awaited(other).then(|| node.to_owned()))
            }
        }
    }
}
