//! The clauses, held to random histories.

use super::*;
use proptest::prelude::*;
use std::{collections::HashMap, num::NonZeroU32};

pub(super) const CLIENTS: usize = 6;
pub(super) const MARK: Duration = Duration::from_secs(2);

pub(super) fn name() -> Name {
    Name::new("a").unwrap()
}

pub(super) fn claim(mode: Mode, lease: u64) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: name(),
        mode,
        lease: Duration::from_millis(lease),
        waits: true,
        reserve: 0,
        holder: Arc::new(HolderInfo { label: None, host: "h".to_owned(), pid: 1 }),
    }
}

pub(super) fn permits(take: u32, of: u32) -> Mode {
    let number = |number| NonZeroU32::new(number).unwrap();
    Mode::Permit { take: number(take), of: number(of) }
}

pub(super) fn start() -> StoreTime {
    StoreTime::from_micros(1_700_000_000_000_000)
}

fn granted(attempt: Result<Attempt, StoreError>) -> Option<Grant> {
    match attempt {
        Ok(Attempt::Granted(grant)) => Some(grant),
        _ => None,
    }
}

pub(super) fn acquire(record: &mut Record, claim: &Claim, now: StoreTime) -> Option<Grant> {
    granted(record.acquire(claim, now, Moment::now()))
}

/// Three clients are in processes that can be told.
fn bell(who: usize) -> Option<Bell> {
    who.is_multiple_of(2).then_some(Bell(who as u64))
}

/// A random request to the record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Acquire(usize),
    Wait(usize),
    Mark(usize),
    Release(usize),
    Renew(usize),
    Convert(usize, Mode),
    /// The client's next request is another claim.
    Withdraw(usize),
    Force,
    Pass(u64),
}

pub(super) fn modes() -> impl Strategy<Value = Mode> {
    let permit = (1..=3_u32).prop_map(|take| permits(take, 3));
    prop_oneof![2 => Just(Mode::Exclusive), 2 => Just(Mode::Shared), 2 => permit]
}

pub(super) fn steps(length: usize) -> impl Strategy<Value = Vec<Step>> {
    let who = || 0..CLIENTS;
    let to = prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)];
    let step = prop_oneof![
        6 => who().prop_map(Step::Acquire),
        3 => who().prop_map(Step::Wait),
        2 => who().prop_map(Step::Mark),
        3 => who().prop_map(Step::Release),
        2 => who().prop_map(Step::Renew),
        2 => (who(), to).prop_map(|(who, to)| Step::Convert(who, to)),
        1 => who().prop_map(Step::Withdraw),
        1 => Just(Step::Force),
        4 => (1..2_500_u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..length)
}

/// Six clients, with the claim and the last grant of each.
pub(super) struct World {
    pub(super) record: Record,
    pub(super) now: StoreTime,
    pub(super) claims: Vec<Claim>,
    pub(super) grants: HashMap<ClaimId, Grant>,
    greatest: u64,
}

impl World {
    pub(super) fn new(modes: &[Mode]) -> Self {
        // Some reserve the tokens of seconds, so that only the remembered token keeps the next ones apart.
        let reserving = |(who, mode): (u32, &Mode)| Claim { reserve: who * 1_000_000, ..claim(*mode, 1_000) };
        let claims = (0..).zip(modes).map(reserving).collect();
        Self { record: Record::default(), now: start(), claims, grants: HashMap::new(), greatest: 0 }
    }

    /// Takes the step; `true` when it must be the same if it is taken again.
    pub(super) fn take(&mut self, step: Step) -> bool {
        let now = self.now;
        let asks = |who: usize| self.claims[who].clone();
        match step {
            Step::Acquire(who) => {
                let claim = asks(who);
                let knew = self.record.is_held_by(claim.id, now);
                if let Some(grant) = acquire(&mut self.record, &claim, now) {
                    if knew {
                        assert_eq!(
                            grant.token, self.grants[&claim.id].token,
                            "granted again with another token"
                        );
                    } else {
                        let first = grant.token_now();
                        assert!(first.get() > self.greatest, "{first} after {}", self.greatest);
                        self.greatest = grant.token.get();
                    }
                    assert_eq!(grant.reserved, claim.reserve);
                    self.grants.insert(claim.id, grant);
                }
            }
            Step::Wait(who) => {
                self.record.join_queue(&asks(who), now);
                self.record.set_bell(asks(who).id, bell(who));
            }
            Step::Mark(who) => {
                self.record.leave_mark(&asks(who), now, MARK);
                self.record.set_bell(asks(who).id, bell(who));
            }
            Step::Release(who) => {
                if let Some(grant) = self.grants.get(&asks(who).id) {
                    self.record.release(grant, now);
                }
            }
            Step::Renew(who) => {
                if let Some(grant) = self.grants.get(&asks(who).id) {
                    self.record.renew(grant, now);
                }
            }
            Step::Convert(who, to) => {
                if let Some(grant) = self.grants.get(&asks(who).id)
                    && !matches!(grant.mode, Mode::Permit { .. })
                {
                    self.record.convert(grant, to, now);
                }
            }
            Step::Withdraw(who) => {
                let claim = asks(who);
                self.record.withdraw(claim.id);
                assert!(!self.record.is_held_by(claim.id, now), "withdrawn, and held");
                assert_ne!(self.record.next(now), Some(claim.id), "withdrawn, and waits");
                self.claims[who].id = ClaimId::new();
                return false;
            }
            Step::Force => {
                self.record.force_release(&name(), now);
                assert_eq!(self.record.holders(&name(), now), []);
            }
            Step::Pass(millis) => {
                self.now = now + Duration::from_millis(millis);
                return false;
            }
        }
        true
    }

    /// Clause X1: the holders of the name admit each other.
    fn is_admissible(&self) {
        let modes: Vec<Mode> = self.record.live(self.now).map(|held| held.mode).collect();
        for (index, mode) in modes.iter().enumerate() {
            let others = modes.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, mode)| *mode);
            assert!(mode.admits(others), "beside each other: {modes:?}");
        }
    }

    /// No waiter holds the name, and the next is the first of them.
    fn tells_of_those_who_wait(&self) {
        let (record, now) = (&self.record, self.now);
        let told: Vec<_> = record.waiting(&name(), now).iter().filter_map(|waiter| waiter.claim).collect();
        assert!(!told.iter().any(|claim| record.is_held_by(*claim, now)), "holds, and waits: {record:?}");
        assert!(record.next(now).is_none_or(|next| told.first() == Some(&next)), "{told:?}: {record:?}");
    }
}

proptest! {
    #[test]
    fn every_history_keeps_the_contract(
        modes in proptest::collection::vec(modes(), CLIENTS),
        steps in steps(120),
    ) {
        let mut world = World::new(&modes);
        for step in steps {
            if world.take(step) {
                let once = world.record.clone();
                world.take(step);
                prop_assert_eq!(&once, &world.record, "{:?} twice", step);
            }
            world.is_admissible();
            world.tells_of_those_who_wait();
            let text = serde_json::to_string(&world.record).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Record>(&text).unwrap(), &world.record);
        }
    }
}
