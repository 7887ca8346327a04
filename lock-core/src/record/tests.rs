//! The clauses, held to random histories.

use super::*;
use proptest::prelude::*;
use std::{collections::HashMap, num::NonZeroU32};

pub(super) const CLIENTS: usize = 6;
pub(super) const MARK: Duration = Duration::from_secs(2);
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

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

fn permits(take: u32, of: u32) -> Mode {
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

/// What somebody asks of the record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Acquire(usize),
    Wait(usize),
    Mark(usize),
    Release(usize),
    Renew(usize),
    Convert(usize, Mode),
    /// And what the client asks next is another claim.
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

/// Six clients, what each asks for, and the grant that it last had.
pub(super) struct World {
    pub(super) record: Record,
    pub(super) now: StoreTime,
    pub(super) claims: Vec<Claim>,
    pub(super) grants: HashMap<ClaimId, Grant>,
    greatest: u64,
}

impl World {
    pub(super) fn new(modes: &[Mode]) -> Self {
        // Some reserve the tokens of seconds, so that only what is remembered keeps the next one's apart.
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

    /// Clause X1: those who hold the name admit each other.
    fn is_admissible(&self) {
        let modes: Vec<Mode> = self.record.live(self.now).map(|held| held.mode).collect();
        for (index, mode) in modes.iter().enumerate() {
            let others = modes.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, mode)| *mode);
            assert!(mode.admits(others), "beside each other: {modes:?}");
        }
    }

    /// None of them holds the name, and whoever is next is the first of them.
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

    /// Nobody who waits, and whom a change lets in, is left to find out by itself; and nobody is woken in line for nothing.
    #[test]
    fn whoever_is_let_in_is_woken(
        modes in proptest::collection::vec(modes(), CLIENTS),
        steps in steps(120),
        fair in any::<bool>(),
    ) {
        let mut world = World::new(&modes);
        // The clients of a store agree on whether it has a queue.
        let agrees = |step: &Step| !matches!((step, fair), (Step::Mark(_), true) | (Step::Wait(_), false));
        for step in steps.into_iter().filter(agrees) {
            let (before, now, claims) = (world.record.clone(), world.now, world.claims.clone());
            world.take(step);
            if world.now != now {
                continue;
            }
            let (after, wake) = (&world.record, world.record.wakes(&before, now));
            let granted = |record: &Record, claim: &Claim| record.would_grant(claim, now).unwrap_or(false);
            let is_let_in = |claim: &&Claim| !granted(&before, claim) && granted(after, claim);
            let first = claims.iter().find(|claim| after.queue.first(now).is_some_and(|(id, _)| id == claim.id));
            if let Some(first) = first {
                prop_assert!(!is_let_in(&first) || wake == Wake::First { claim: first.id, bell: after.queue.bell(first.id) }, "{:?}: {:?} after {:?}", step, after, before);
                prop_assert!(wake == Wake::Nobody || after.next(now) == Some(first.id), "{:?} for nothing", wake);
            } else if before.mark.as_ref().is_some_and(|mark| mark.stands(now)) {
                let let_in = claims.iter().any(|claim| is_let_in(&claim));
                prop_assert!(!let_in || wake == Wake::All { bell: before.mark.as_ref().and_then(Mark::bell) }, "{:?}: {:?} after {:?}", step, after, before);
            } else {
                prop_assert_eq!(wake, Wake::Nobody, "nobody waits");
            }
        }
    }

    /// A table that keeps what fits into columns there, and the rest as a record, forgets nothing that matters.
    #[test]
    fn columns_lose_nothing(modes in proptest::collection::vec(modes(), CLIENTS), steps in steps(60)) {
        let mut world = World::new(&modes);
        for step in steps {
            world.take(step);
            let (record, now) = (&world.record, world.now);
            prop_assert!(record.is_idle(record.idle_from(now)), "{record:?}");
            prop_assert_eq!(record.is_idle(now), record.idle_from(now) == now);
            let Some(plain) = record.plain(now) else { continue };
            let other = Record::from(plain.clone());
            prop_assert_eq!(other.plain(now), Some(plain));
            prop_assert_eq!(other.last_token(), record.last_token());
            for later in [0, 500, 999, 1_000, 2_000].map(|millis| now + Duration::from_millis(millis)) {
                prop_assert_eq!(other.holders(&name(), later), record.holders(&name(), later));
                prop_assert_eq!(other.is_idle(later), record.is_idle(later));
                for asks in world.claims.iter().chain(&MODES.map(|mode| claim(mode, 1_000))) {
                    let granted = |record: &Record| record.would_grant(asks, later).ok();
                    prop_assert_eq!(granted(&other), granted(record), "{:?} {:?}", asks.mode, record);
                }
                for grant in world.grants.values() {
                    let [mut one, mut two] = [&other, record].map(Record::clone);
                    let (renewal, release) = (two.renew(grant, later), two.release(grant, later));
                    // A holder learns of a forced release until its lease would have expired, or later if nothing changed.
                    if renewal == Renewal::Lost(LossCause::Forced) {
                        prop_assert_ne!(one.renew(grant, later), Renewal::Renewed);
                    } else {
                        prop_assert_eq!(one.renew(grant, later), renewal);
                        prop_assert_eq!(one.release(grant, later), release);
                    }
                }
            }
        }
    }

    /// Whatever has happened: once nobody new comes, each who waits and is heard of is served, in the order of the queue.
    #[test]
    fn a_queue_serves_everybody_in_order(
        modes in proptest::collection::vec(modes(), CLIENTS),
        steps in steps(80),
    ) {
        let mut world = World::new(&modes);
        for step in steps {
            world.take(step);
        }
        let World { mut record, mut now, claims, .. } = world;
        let line: Vec<Claim> = record.queue.in_order().filter_map(|id| claims.iter().find(|claim| claim.id == id)).cloned().collect();
        let mut served = Vec::new();
        // A lease and a mark are over by then, and nobody loses its place.
        for _ in 0..30 {
            now = now + Duration::from_millis(500);
            let waits = |claim: &&Claim| !served.contains(&claim.id) && !record.is_held_by(claim.id, now);
            let waiting: Vec<&Claim> = line.iter().filter(waits).collect();
            for claim in &waiting {
                record.join_queue(claim, now);
            }
            for claim in waiting {
                if acquire(&mut record, claim, now).is_some() {
                    served.push(claim.id);
                }
            }
        }
        let order: Vec<ClaimId> = line.iter().map(|claim| claim.id).filter(|id| served.contains(id)).collect();
        prop_assert_eq!(served.len(), line.len(), "somebody starves");
        prop_assert_eq!(served, order);
    }
}

#[test]
fn a_holder_learns_of_a_forced_release() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Exclusive, 1000), claim(Mode::Exclusive, 1000));
    let grant = acquire(&mut record, &one, now).unwrap();
    assert_eq!(record.force_release(&name(), now).len(), 1);
    for _ in 0..2 {
        assert_eq!(record.release(&grant, now), Release::Lost(LossCause::Forced));
        assert_eq!(record.renew(&grant, now), Renewal::Lost(LossCause::Forced));
    }
    let later = now + Duration::from_secs(1);
    assert!(record.is_idle(later), "{record:?}");
    let second = acquire(&mut record, &other, later).unwrap();
    assert_eq!(record.release(&grant, later), Release::Lost(LossCause::TakenOver));
    assert_eq!(record.renew(&second, later + Duration::from_secs(1)), Renewal::Lost(LossCause::Expired));
    assert_eq!(Record::default().renew(&second, later), Renewal::Lost(LossCause::Forgotten));
}

/// Also when the one who took the name has gone again.
#[test]
fn whoever_held_a_name_alone_is_told_that_it_was_taken() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Exclusive, 1000), claim(Mode::Shared, 1000));
    let lost = acquire(&mut record, &one, now).unwrap();
    let over = now + Duration::from_secs(1);
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::Expired));
    let second = acquire(&mut record, &other, over).unwrap();
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::TakenOver));
    record.release(&second, over);
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::TakenOver));
}

/// A later token beside others took nothing away.
#[test]
fn a_reader_whose_lease_is_over_is_taken_over_by_a_writer_alone() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Shared, 1000), claim(Mode::Shared, 9000));
    let lost = acquire(&mut record, &one, now).unwrap();
    let second = acquire(&mut record, &other, now).unwrap();
    let over = now + Duration::from_secs(1);
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::Expired));
    record.release(&second, over);
    acquire(&mut record, &claim(Mode::Exclusive, 1000), over).unwrap();
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::TakenOver));
}

/// Who wants a name alone waits for all who share it, others for the first.
#[test]
fn whoever_is_refused_is_told_how_long_it_takes() {
    let (mut record, now) = (Record::default(), start());
    for lease in [3000, 9000, 5000] {
        acquire(&mut record, &claim(permits(1, 3), lease), now).unwrap();
    }
    let seconds = |mode| match record.clone().acquire(&claim(mode, 1000), now, Moment::now()) {
        Ok(Attempt::Busy { expires_in: Some(left) }) => left.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(seconds(Mode::Exclusive), 9);
    assert_eq!(seconds(permits(1, 3)), 3);
}

#[test]
fn a_lease_is_over_at_its_end_and_not_before() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Exclusive, 1000), claim(Mode::Exclusive, 1000));
    let grant = acquire(&mut record, &one, now).unwrap();
    let last = now + Duration::from_micros(999_999);
    assert!(acquire(&mut record, &other, last).is_none());
    assert_eq!(record.clone().renew(&grant, last), Renewal::Renewed);
    assert!(acquire(&mut record, &other, now + Duration::from_secs(1)).is_some());
}

/// A request for the first lease may arrive after the lease was extended.
#[test]
fn a_lease_is_not_shortened_by_being_granted_again() {
    for mode in MODES {
        let (mut record, now) = (Record::default(), start());
        let claim = claim(mode, 1000);
        let grant = acquire(&mut record, &claim, now).unwrap();
        let longer = Grant { lease: Duration::from_secs(9), ..grant };
        assert_eq!(record.renew(&longer, now), Renewal::Renewed);
        assert_eq!(acquire(&mut record, &claim, now).map(|again| again.token), Some(longer.token));
        assert_eq!(record.holders(&name(), now)[0].left, Some(longer.lease));
        // Where less is left than was asked for, it lasts as long as a fresh one.
        let late = now + Duration::from_millis(8500);
        assert!(acquire(&mut record, &claim, late).is_some());
        assert_eq!(record.holders(&name(), late)[0].left, Some(claim.lease));
    }
}

#[test]
fn a_writer_that_waits_stops_new_readers() {
    let (mut record, now) = (Record::default(), start());
    let (reader, late, writer) =
        (claim(Mode::Shared, 9000), claim(Mode::Shared, 9000), claim(Mode::Exclusive, 9000));
    let grant = acquire(&mut record, &reader, now).unwrap();
    assert!(acquire(&mut record, &writer, now).is_none());
    record.leave_mark(&writer, now, MARK);
    assert!(acquire(&mut record, &late, now).is_none(), "past the writer");
    // A reader's mark would make the record forget the writer.
    record.leave_mark(&late, now, MARK);
    assert!(record.has_mark(writer.id, now) && !record.has_mark(late.id, now));
    assert!(!record.has_mark(writer.id, now + MARK));
    assert!(acquire(&mut record, &late, now).is_none(), "past the writer");
    assert!(acquire(&mut record, &reader, now).is_some(), "it holds the name already");
    assert_eq!(record.release(&grant, now), Release::Released { awaited: true });
    assert!(acquire(&mut record, &writer, now).is_some());
    assert_eq!(record.mark, None);
    // One that died keeps the readers out for no longer than its mark stands.
    let mut record = Record::default();
    record.leave_mark(&writer, now, MARK);
    assert!(acquire(&mut record, &late, now).is_none());
    assert!(acquire(&mut record, &late, now + MARK).is_some());
}

#[test]
fn a_dead_waiter_delays_the_others_for_as_long_as_its_place_lasts() {
    let (mut record, now) = (Record::default(), start());
    let (dead, next) = (claim(Mode::Exclusive, 1000), claim(Mode::Exclusive, 1000));
    record.join_queue(&dead, now);
    record.join_queue(&next, now + Duration::from_secs(2));
    let almost = StoreTime::from_micros((now + Record::PLACE).as_micros() - 1);
    assert!(acquire(&mut record, &next, almost).is_none());
    assert_eq!(record.next(almost), Some(dead.id));
    assert_eq!(record.next(now + Record::PLACE), Some(next.id));
    assert!(acquire(&mut record, &next, now + Record::PLACE).is_some());
    assert!(record.queue.is_empty(), "whoever is served forgets the dead");
}

#[test]
fn those_who_wait_are_told_in_order_and_since_when() {
    let (mut record, now) = (Record::default(), start());
    let waiters = [claim(Mode::Exclusive, 1000), claim(Mode::Shared, 1000), claim(permits(2, 3), 1000)];
    for (seconds, waiter) in (0..).zip(&waiters) {
        record.join_queue(waiter, now + Duration::from_secs(seconds));
    }
    let later = now + Duration::from_millis(2500);
    let told = record.waiting(&name(), later);
    let expected = waiters.each_ref().map(|waiter| (Some(waiter.id), waiter.mode, (*waiter.holder).clone()));
    let who: Vec<_> = told.iter().map(|waiter| (waiter.claim, waiter.mode, waiter.info.clone())).collect();
    assert_eq!(who, expected);
    let ages: Vec<_> = told.iter().filter_map(|waiter| waiter.age).collect();
    assert_eq!(ages, [2500, 1500, 500].map(Duration::from_millis));
    // A place that is renewed is still the same place.
    record.join_queue(&waiters[0], later);
    assert_eq!(record.waiting(&name(), later), told);
    let shown = |record: &Record| {
        let told = record.waiting(&name(), now + Duration::from_secs(4));
        told.iter().filter_map(|waiter| waiter.claim).collect::<Vec<_>>()
    };
    assert_eq!(shown(&record), [waiters[0].id, waiters[2].id], "nothing was heard of the second");
    record.withdraw(waiters[0].id);
    assert_eq!(shown(&record), [waiters[2].id]);
}

#[test]
fn whoever_is_woken_is_told_by_its_bell() {
    let now = start();
    let (holder, first, next) =
        (claim(Mode::Exclusive, 9000), claim(Mode::Exclusive, 9000), claim(Mode::Exclusive, 9000));
    let woken = |record: &Record, grant: &Grant| {
        let mut after = record.clone();
        after.release(grant, now);
        after.wakes(record, now).bell()
    };
    let mut record = Record::default();
    let grant = acquire(&mut record, &holder, now).unwrap();
    record.set_bell(first.id, Some(Bell(5)));
    assert_eq!(
        (woken(&record, &grant), record.rings(first.id, Bell(5), now)),
        (None, false),
        "it left no mark"
    );
    record.leave_mark(&first, now, MARK);
    assert_eq!(woken(&record, &grant), None);
    record.set_bell(first.id, Some(Bell(5)));
    record.set_bell(next.id, Some(Bell(6)));
    assert_eq!(woken(&record, &grant), Some(Bell(5)));
    assert!(record.rings(next.id, Bell(5), now), "another waits in the same process");
    assert!(!record.rings(next.id, Bell(6), now) && !record.rings(first.id, Bell(5), now + MARK));
    record.set_bell(first.id, None);
    assert_eq!(woken(&record, &grant), None);

    let mut record = Record::default();
    let grant = acquire(&mut record, &holder, now).unwrap();
    for (waiter, bell) in [(&first, Bell(5)), (&next, Bell(6))] {
        record.join_queue(waiter, now);
        record.set_bell(waiter.id, Some(bell));
    }
    assert_eq!(woken(&record, &grant), Some(Bell(5)));
    assert!(record.rings(next.id, Bell(6), now) && !record.rings(next.id, Bell(5), now));
    record.leave_queue(first.id);
    assert_eq!(woken(&record, &grant), Some(Bell(6)));
}

#[test]
fn those_who_disagree_about_permits_are_told() {
    let (mut record, now) = (Record::default(), start());
    acquire(&mut record, &claim(permits(1, 3), 1000), now).unwrap();
    let refused = record.acquire(&claim(permits(1, 4), 1000), now, Moment::now());
    let said = refused.unwrap_err().to_string();
    assert!(said.contains('3') && said.contains('4'), "{said}");
}

#[test]
fn tokens_end_with_an_error() {
    let mut record = Record::after(Token::MAX);
    let refused = record.acquire(&claim(Mode::Exclusive, 1000), start(), Moment::now());
    assert!(refused.is_err(), "{refused:?}");
    let refused = record.acquire(&claim(Mode::Exclusive, 1000), start(), Moment::now());
    assert!(refused.is_err(), "{refused:?}");
}
