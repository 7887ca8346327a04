//! Which server of a Cluster keeps which slots.

use crate::{connection::address::Address, requests::keys::SLOTS};

/// The node that keeps each slot.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    nodes: Vec<Address>,
    /// For each slot, its node's index in `nodes`; empty while nothing is known.
    by_slot: Vec<Option<usize>>,
}

/// One node's answer about one master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeSlots {
    address: Address,
    /// Rises whenever slots change hands.
    epoch: u64,
    ranges: Vec<(u16, u16)>,
}

impl Slots {
    /// Merges the nodes' answers: for each slot the newest epoch counts.
    pub(crate) fn of(said: impl IntoIterator<Item = NodeSlots>) -> Self {
        let mut newest = vec![None; usize::from(SLOTS)];
        let mut nodes = Vec::new();
        for NodeSlots { address, epoch, ranges } in said {
            let node = nodes.iter().position(|known| *known == address).unwrap_or_else(|| {
                nodes.push(address);
                nodes.len() - 1
            });
            for (first, last) in ranges {
                for slot in &mut newest[usize::from(first)..=usize::from(last)] {
                    if slot.is_none_or(|(known, _)| known < epoch) {
                        *slot = Some((epoch, node));
                    }
                }
            }
        }
        let by_slot: Vec<_> = newest.into_iter().map(|slot| slot.map(|(_, node)| node)).collect();
        Self { nodes, by_slot }
    }

    pub(crate) fn node(&self, slot: u16) -> Option<&Address> {
        self.nodes.get(self.place(slot)?)
    }

    /// The index of the slot's node.
    pub(crate) fn place(&self, slot: u16) -> Option<usize> {
        *self.by_slot.get(usize::from(slot))?
    }

    /// Every server that keeps a slot.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Address> {
        let owns = |node: &usize| self.by_slot.contains(&Some(*node));
        (0..self.nodes.len()).filter(owns).map(|node| &self.nodes[node])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }
}

/// Reads the answer to [`CLUSTER NODES`](https://redis.io/docs/latest/commands/cluster-nodes/) of the node at `asked`.
///
/// To a client that connects over TLS, a node names the others' TLS ports. If nodes announce host names, their
/// certificates are for those.
pub(crate) fn read(text: &str, asked: &Address) -> Vec<NodeSlots> {
    text.lines().filter_map(|line| read_line(line, asked)).collect()
}

/// `id ip:port@bus,name flags master ping pong epoch link slot…`; a slot that is moving is in brackets.
fn read_line(line: &str, asked: &Address) -> Option<NodeSlots> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, place, flags, _, _, _, epoch, _, slots @ ..] = &words[..] else { return None };
    if !flags.split(',').any(|flag| flag == "master") {
        return None;
    }
    let Address::Network { host: reached, tls, .. } = asked else { return None };
    let mut place = place.split(',');
    let (host, port) = place.next()?.split('@').next()?.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let host = match (host, place.next()) {
        (_, Some(name)) if *tls && !name.is_empty() => name.to_owned(),
        // A node that does not know its own address was reached at this one.
        ("", _) if flags.contains("myself") => reached.clone(),
        ("", _) => return None,
        (host, _) => host.to_owned(),
    };
    let range = |slots: &&str| {
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        let range = (first.parse().ok()?, last.parse().ok()?);
        (range.0 <= range.1 && range.1 < SLOTS).then_some(range)
    };
    let ranges = slots.iter().filter_map(range).collect();
    Some(NodeSlots {
        address: Address::Network { host, port, tls: *tls },
        epoch: epoch.parse().ok()?,
        ranges,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address::Network { host: host.into(), port, tls: false }
    }

    proptest::proptest! {
        #[test]
        fn node_answer_names_only_existing_slots(
            said in ".*|([0-9a-f]{0,3} [^ ]{0,9}:[0-9]{0,6}(@[0-9]{1,5})? (myself,)?master - 0 1 [0-9]{0,21} connected( [0-9]{0,6}(-[0-9]{0,6})?){0,3}\n){0,3}",
        ) {
            let slots = Slots::of(read(&said, &at("10.0.0.4", 7000)));
            proptest::prop_assert!(slots.node(SLOTS).is_none());
            let reachable = |node: &Address| matches!(node, Address::Network { port: 1.., .. });
            proptest::prop_assert!(slots.nodes().all(reachable));
        }
    }

    #[test]
    fn newest_epoch_of_a_slot_counts() {
        let before = "\
            a 10.0.0.1:7001@17001 master - 0 1 1 connected 0-5460\n\
            b 10.0.0.2:7002@17002,name myself,master - 0 1 2 connected 5461-10922 [5461->-c]\n\
            c ::1:7003@17003 master,fail - 0 1 3 disconnected 10923-16382 16383\n\
            d 10.0.0.4:7004@17004 slave c 0 1 3 connected\n\
            e :0@0 master,noaddr - 0 1 9 disconnected 0\n";
        let after = "\
            c ::1:7003@17003 slave d 0 1 3 disconnected\n\
            d :7004@17004 myself,master - 0 1 4 connected 10923-16383\n";
        let asked = at("10.0.0.4", 7000);
        let slots = Slots::of([read(after, &asked), read(before, &asked)].concat());
        let node = |slot| slots.node(slot).cloned();
        assert_eq!(node(0), Some(at("10.0.0.1", 7001)));
        assert_eq!(node(5461), Some(at("10.0.0.2", 7002)));
        assert_eq!(node(16_383), Some(at("10.0.0.4", 7004)));
        assert_eq!(slots.nodes().count(), 3, "the old master keeps nothing");
        assert_eq!(Slots::of(read(before, &asked)).node(16_383), Some(&at("::1", 7003)));
        let over_tls = Address::Network { host: "10.0.0.4".into(), port: 7000, tls: true };
        let named = Slots::of(read(before, &over_tls));
        let named = |slot| named.node(slot).map(ToString::to_string).unwrap();
        assert_eq!([named(0), named(5461)], ["10.0.0.1:7001", "name:7002"]);
        assert!(Slots::default().is_empty() && Slots::default().node(1).is_none());
        assert_eq!(read("nonsense\n\na b c", &asked), []);
    }
}
