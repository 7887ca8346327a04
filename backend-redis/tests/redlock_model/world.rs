//! The state of everything, and what can happen next.

use super::rules::{CLIENTS, CLOCKS, Flaw, NODES, Rules, Step, Violation};

/// The attempt number of a release: all attempts of the claim.
const ALL: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Node {
    /// The key that stands here.
    key: Option<Key>,
    /// The last token, which outlives the key.
    token: u8,
}

/// A key, and what the record says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    client: usize,
    /// The client's last attempt that was carried out here.
    attempt: u8,
    /// From which of the client's requests the lease counts.
    counts_from: u8,
    raised: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    #[default]
    Idle,
    First,
    Second,
    Holding,
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Client {
    phase: Phase,
    attempt: u8,
    /// The tokens that it was told in this attempt, and whether they had been raised.
    votes: [Option<(bool, u8)>; NODES],
    /// The token of each attempt's second round.
    tokens: [u8; 2],
    /// To which nodes the second round of each attempt went.
    asked_to_raise: [u8; 2],
    raised: u8,
    /// The attempts whose withdrawal was sent.
    undone: u8,
    released: bool,
    /// Where the requests of each attempt may still be carried out.
    on_their_way: [u8; 2],
    /// Which request sent each attempt, and the renewal.
    sent: [u8; 2],
    renewal: u8,
    renewed: u8,
    /// How many requests with a lease it sent, and how many of these leases are over for it.
    requests: u8,
    over: u8,
    /// From which request its belief counts.
    counts_from: u8,
    /// The greatest token granted when its attempt began.
    floor: u8,
}

impl Client {
    fn believes(&self) -> bool {
        self.phase == Phase::Holding && self.over <= self.counts_from
    }

    /// The client no longer needs the answers. Its keys may end now, by a withdrawal or a release, so whether they also
    /// may because their leases are over makes no difference.
    fn ends(&mut self, phase: Phase) {
        *self = Self {
            phase,
            votes: Default::default(),
            raised: 0,
            renewed: 0,
            floor: 0,
            over: self.requests,
            ..*self
        };
    }
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct World {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    /// The tokens that were granted; where clocks agree, the last.
    granted: u16,
    restarts: u8,
    duplicates: u8,
}

type Next = Result<World, Violation>;
/// A step's outcome, if it is possible.
type Change = Option<Result<(), Violation>>;

impl World {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            nodes: [Node::default(); NODES],
            clients: [Client::default(); CLIENTS],
            granted: 0,
            restarts: rules.restarts_empty,
            duplicates: rules.duplicates,
        }
    }

    /// One state for all that differ only by the order of the first two nodes, whose clocks are alike.
    pub(crate) fn canonical(self) -> Self {
        let swap = |bits: u8| (bits & !3) | ((bits & 1) << 1) | ((bits >> 1) & 1);
        let mut other = self;
        other.nodes.swap(0, 1);
        for it in &mut other.clients {
            it.votes.swap(0, 1);
            for bits in it.asked_to_raise.iter_mut().chain(&mut it.on_their_way) {
                *bits = swap(*bits);
            }
            (it.raised, it.renewed) = (swap(it.raised), swap(it.renewed));
        }
        if other < self { other } else { self }
    }

    /// All next steps and their outcomes, without those that change nothing.
    pub(crate) fn steps(&self, rules: &Rules) -> Vec<(Step, Next)> {
        let mut steps = Vec::new();
        let mut then = |step: Step, change: &dyn Fn(&mut World) -> Change| {
            let mut next = *self;
            match change(&mut next) {
                Some(Ok(())) if next != *self => steps.push((step, Ok(next))),
                Some(Err(violation)) => steps.push((step, Err(violation))),
                _ => {}
            }
        };
        for client in 0..CLIENTS {
            then(Step::Begin { client }, &|world| world.begin(client, rules));
            for without in [None, Some(0), Some(1), Some(2)] {
                let step = Step::SecondRound { client, without };
                then(step, &|world| world.second_round(client, without, rules));
            }
            then(Step::Grant { client }, &|world| world.grant(client, rules));
            then(Step::GiveUp { client }, &|world| world.give_up(client));
            then(Step::Renew { client }, &|world| world.renew(client, rules));
            then(Step::Renewed { client }, &|world| world.renewed(client, rules));
            if rules.ends {
                then(Step::Release { client }, &|world| world.release(client));
                then(Step::LeaseOver { client }, &|world| world.lease_over(client));
            }
            for node in 0..NODES {
                for attempt in 1..=self.clients[client].attempt {
                    for twice in [false, true] {
                        let step = Step::Ask { client, attempt, node, twice };
                        then(step, &|world| world.ask(client, attempt, node, twice));
                    }
                    let step = Step::Raise { client, attempt, node };
                    then(step, &|world| world.raise(client, attempt, node, rules));
                }
                then(Step::Extend { client, node }, &|world| world.extend(client, node));
                for attempt in [1, 2, ALL] {
                    let step = Step::Undo { client, attempt, node };
                    then(step, &|world| world.end(client, attempt, node, rules));
                }
            }
        }
        for node in 0..NODES {
            then(Step::Expire { node }, &|world| world.expire(node, rules));
            then(Step::RestartEmpty { node }, &|world| world.restart_empty(node));
        }
        steps
    }

    fn begin(&mut self, client: usize, rules: &Rules) -> Change {
        let floor = 15_u32.saturating_sub(self.granted.leading_zeros());
        let it = &mut self.clients[client];
        if it.phase != Phase::Idle || it.attempt == rules.attempts[client] {
            return None;
        }
        it.attempt += 1;
        it.phase = Phase::First;
        it.counts_from = it.requests;
        it.sent[usize::from(it.attempt) - 1] = it.requests;
        it.requests += 1;
        it.on_their_way[usize::from(it.attempt) - 1] = (1 << NODES) - 1;
        it.floor = if rules.clocks_agree { 0 } else { u8::try_from(floor).ok()? };
        Some(Ok(()))
    }

    /// A node carries out the request of an attempt, as `ask.lua` does. Its answer is counted or not when the second
    /// round begins, as if it had been lost.
    fn ask(&mut self, client: usize, attempt: u8, node: usize, twice: bool) -> Change {
        let it = &mut self.clients[client];
        let (here, counts_from) = (&mut self.nodes[node], it.sent[usize::from(attempt) - 1]);
        let on_their_way = &mut it.on_their_way[usize::from(attempt) - 1];
        if *on_their_way & (1 << node) == 0 {
            return None;
        }
        if twice {
            self.duplicates = self.duplicates.checked_sub(1)?;
        } else {
            *on_their_way &= !(1 << node);
        }
        match &mut here.key {
            Some(key) if key.client != client => return Some(Ok(())),
            Some(key) if key.attempt < attempt => {
                key.attempt = attempt;
                key.counts_from = key.counts_from.max(counts_from);
            }
            Some(_) => {}
            None => {
                here.token = (here.token + 1).max(CLOCKS[node]);
                here.key = Some(Key { client, attempt, counts_from, raised: false });
            }
        }
        let at = usize::from(attempt) - 1;
        match it.phase {
            Phase::First if it.attempt == attempt => {
                it.votes[node] = here.key.map(|key| (key.raised, here.token));
            }
            // Late, and good enough for the second round.
            Phase::Second if it.attempt == attempt && here.token <= it.tokens[at] => {
                it.asked_to_raise[at] |= 1 << node;
            }
            _ => {}
        }
        Some(Ok(()))
    }

    /// Enough answers have come: all that could, or all but this node's.
    fn second_round(&mut self, client: usize, without: Option<usize>, rules: &Rules) -> Change {
        let it = &mut self.clients[client];
        if let Some(node) = without {
            it.votes[node].take()?;
        }
        let votes = it.votes.iter().flatten();
        if it.phase != Phase::First || votes.clone().count() < rules.majority as usize {
            return None;
        }
        let (_, token) = *votes.max()?;
        let at = usize::from(it.attempt) - 1;
        it.tokens[at] = token;
        for (node, vote) in it.votes.iter().enumerate() {
            if vote.is_some_and(|(_, issued)| issued <= token) {
                it.asked_to_raise[at] |= 1 << node;
            }
        }
        it.phase = Phase::Second;
        it.votes = Default::default();
        Some(Ok(()))
    }

    /// A node carries out a request of the second round, as `raise.lua` does.
    fn raise(&mut self, client: usize, attempt: u8, node: usize, rules: &Rules) -> Change {
        let (it, at) = (&mut self.clients[client], usize::from(attempt) - 1);
        if it.asked_to_raise[at] & (1 << node) == 0 {
            return None;
        }
        let (here, token) = (&mut self.nodes[node], it.tokens[at]);
        match &mut here.key {
            Some(key) if key.client == client && here.token <= token => {
                key.raised = true;
                here.token = here.token.max(token);
            }
            _ if rules.flaw == Some(Flaw::RaisesAnywhere) => here.token = here.token.max(token),
            _ => return None,
        }
        if it.attempt == attempt && it.phase == Phase::Second {
            it.raised |= 1 << node;
        }
        Some(Ok(()))
    }

    fn grant(&mut self, client: usize, rules: &Rules) -> Change {
        let it = &mut self.clients[client];
        let confirmed =
            if rules.flaw == Some(Flaw::NoSecondRound) { rules.majority } else { it.raised.count_ones() };
        if it.phase != Phase::Second || confirmed < rules.majority || it.over > it.counts_from {
            return None;
        }
        let (token, floor) = (it.tokens[usize::from(it.attempt) - 1], it.floor);
        it.phase = Phase::Holding;
        (it.raised, it.floor) = (0, 0);
        let holders = self.clients.iter().filter(|it| it.believes()).count();
        if holders > 1 && (rules.clocks_agree || rules.exclusion_anyway) {
            return Some(Err(Violation::TwoHolders));
        }
        // Where clocks agree grants have an order; elsewhere those that followed one another do.
        let not_greater =
            if rules.clocks_agree { self.granted >> token != 0 } else { self.granted >> token & 1 != 0 };
        if not_greater || token <= floor {
            return Some(Err(Violation::TokenNotGreater));
        }
        self.granted = if rules.clocks_agree { 0 } else { self.granted } | 1 << token;
        Some(Ok(()))
    }

    fn give_up(&mut self, client: usize) -> Change {
        let it = &mut self.clients[client];
        if !matches!(it.phase, Phase::First | Phase::Second) {
            return None;
        }
        it.undone |= 1 << it.attempt;
        it.ends(Phase::Idle);
        Some(Ok(()))
    }

    fn release(&mut self, client: usize) -> Change {
        let it = &mut self.clients[client];
        if it.phase != Phase::Holding {
            return None;
        }
        it.released = true;
        it.ends(Phase::Over);
        Some(Ok(()))
    }

    /// A node carries out a withdrawal or a release, as `end.lua` does. The mark that it leaves is a request that will
    /// not be carried out.
    fn end(&mut self, client: usize, attempt: u8, node: usize, rules: &Rules) -> Change {
        let it = &mut self.clients[client];
        let sent = if attempt == ALL { it.released } else { it.undone & (1 << attempt) != 0 };
        if !sent {
            return None;
        }
        for on_their_way in it.on_their_way.iter_mut().take(usize::from(attempt)) {
            *on_their_way &= !(1 << node);
        }
        let key = &mut self.nodes[node].key;
        if key.is_some_and(|key| {
            key.client == client && (key.attempt <= attempt || rules.flaw == Some(Flaw::UndoesAnyAttempt))
        }) {
            *key = None;
        }
        Some(Ok(()))
    }

    fn renew(&mut self, client: usize, rules: &Rules) -> Change {
        let it = &mut self.clients[client];
        if !it.believes() || it.renewal > 0 || rules.renewals == 0 {
            return None;
        }
        it.renewal = it.requests;
        it.requests += 1;
        Some(Ok(()))
    }

    /// A node carries out a renewal, as `renew.lua` does.
    fn extend(&mut self, client: usize, node: usize) -> Change {
        let it = &mut self.clients[client];
        let counts_from = it.renewal;
        if it.renewal == 0 {
            return None;
        }
        match &mut self.nodes[node].key {
            Some(key) if key.client == client => key.counts_from = key.counts_from.max(counts_from),
            _ => return None,
        }
        if it.phase == Phase::Holding && it.counts_from < it.renewal {
            it.renewed |= 1 << node;
        }
        Some(Ok(()))
    }

    fn renewed(&mut self, client: usize, rules: &Rules) -> Change {
        let it = &mut self.clients[client];
        if !it.believes() || it.renewed.count_ones() < rules.majority {
            return None;
        }
        (it.counts_from, it.renewed) = (it.renewal, 0);
        Some(Ok(()))
    }

    /// The oldest lease of a client's requests is over for it.
    fn lease_over(&mut self, client: usize) -> Change {
        let it = &mut self.clients[client];
        if it.over == it.requests {
            return None;
        }
        it.over += 1;
        Some(Ok(()))
    }

    fn expire(&mut self, node: usize, rules: &Rules) -> Change {
        let key = self.nodes[node].key.take()?;
        let stands = self.clients[key.client].over <= key.counts_from;
        if rules.clocks_agree && stands { None } else { Some(Ok(())) }
    }

    fn restart_empty(&mut self, node: usize) -> Change {
        self.restarts = self.restarts.checked_sub(1)?;
        self.nodes[node] = Node::default();
        Some(Ok(()))
    }
}
