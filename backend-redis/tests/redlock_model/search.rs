//! Visits every state that can be reached, the nearest first.

use super::{
    rules::{Rules, Violation},
    world::World,
};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

/// More states than any of these models has: one that has more is not what it is meant to be.
const TOO_MANY: usize = 6_000_000;

/// The outcome.
pub(crate) struct Found {
    pub(crate) states: usize,
    /// The first violation, and the shortest way to it.
    pub(crate) violation: Option<(Violation, Vec<String>)>,
}

pub(crate) fn search(rules: &Rules) -> Found {
    let start = World::new(rules);
    // Of a state a hash is kept: that two of a few million share one is less likely than an error of the machine.
    let mut known = HashSet::from([hash(&start)]);
    // Each state, and the place of the one before it.
    let mut states = vec![(start, usize::MAX)];
    let mut at = 0;
    while at < states.len() {
        let world = states[at].0;
        for (step, next) in world.steps(rules) {
            match next {
                Ok(next) => {
                    let next = next.canonical();
                    if known.insert(hash(&next)) {
                        states.push((next, at));
                        assert!(states.len() < TOO_MANY, "too many states: {rules:?}");
                    }
                }
                Err(violation) => {
                    let mut steps = way_to(&states, at, rules);
                    steps.push(format!("{step:?}"));
                    return Found { states: states.len(), violation: Some((violation, steps)) };
                }
            }
        }
        at += 1;
    }
    Found { states: states.len(), violation: None }
}

fn hash(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

fn way_to(states: &[(World, usize)], mut at: usize, rules: &Rules) -> Vec<String> {
    let mut steps = Vec::new();
    while let (world, before) = states[at]
        && before != usize::MAX
    {
        let taken = states[before]
            .0
            .steps(rules)
            .into_iter()
            .find(|(_, next)| next.is_ok_and(|next| next.canonical() == world));
        steps.push(taken.map_or_else(|| "?".to_owned(), |(step, _)| format!("{step:?}")));
        at = before;
    }
    steps.reverse();
    steps
}
