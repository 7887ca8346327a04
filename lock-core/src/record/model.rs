//! Every state of a record, and every step from each.
//!
//! Up to three claims ask for one name. A step is a request of one of them, or a tick of the store's clock. Renewals,
//! conversions, releases and withdrawals come at any time, late ones too, and each request comes twice, because its
//! answer was lost. Two claims may also be requested again once their grants have ended, as by a straggler; with three,
//! that would be too many states. Beside the record goes a [`Ledger`], which hears the answers alone and knows which ones
//! the contract allows.
//!
//! Two states are one if they differ only in the time of day, in how far tokens are apart, or in which of two claims for
//! the same mode is which. So there are finitely many, and the clock never stops.

mod ledger;
mod step;

use super::{
    tests::{claim, permits, start},
    *,
};
use ledger::Ledger;
use std::{
    array,
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    iter,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};
use step::{ALONE, Answer, CLAIMS, Held, LEASE, PLACE, READER, Step, TICK, reserve};

/// The claims, and all that can happen.
struct Scene {
    claims: [Claim; CLAIMS],
    newcomer: Claim,
    sent: Moment,
    steps: Vec<Step>,
}

impl Scene {
    /// Of the claims, only the first so many ask for anything.
    fn new(wants: [Mode; CLAIMS], asking: usize, queues: bool) -> Self {
        let claims = wants.map(|mode| Claim { lease: LEASE, reserve: reserve(mode), ..claim(mode, 0) });
        let mut steps = vec![Step::Force, Step::Forget, Step::Columns, Step::Tick];
        for (who, mode) in wants.into_iter().enumerate().take(asking) {
            steps.extend([Step::Acquire(who), Step::Release(who), Step::Withdraw(who)]);
            let waits = if queues { vec![Step::Wait(who), Step::Leave(who)] } else { vec![Step::Mark(who)] };
            steps.extend(waits);
            if let Mode::Permit { .. } = mode {
                steps.extend([LEASE, LEASE * 2].map(|lease| Step::Renew(who, mode, lease)));
            } else {
                steps.extend([ALONE, READER].map(|to| Step::Convert(who, to)));
                steps.extend([(ALONE, 1), (READER, 2)].map(|(mode, n)| Step::Renew(who, mode, LEASE * n)));
            }
        }
        Self { claims, newcomer: claim(ALONE, 1), sent: Moment::now(), steps }
    }

    fn who(&self, id: ClaimId) -> usize {
        self.claims.iter().position(|claim| claim.id == id).expect("a stranger's claim")
    }

    fn held(&self, holders: Vec<Holder>) -> Vec<Held> {
        let tell = |holder: Holder| {
            (self.who(holder.claim.unwrap()), holder.mode, holder.token.unwrap(), holder.left.unwrap())
        };
        let mut held: Vec<Held> = holders.into_iter().map(tell).collect();
        held.sort_unstable_by_key(|(who, ..)| *who);
        held
    }

    /// Sends the request to the record, if it can be sent now.
    fn ask(&self, record: &mut Record, ledger: &Ledger, step: Step) -> Option<Answer> {
        let (claims, now) = (&self.claims, ledger.now);
        let grant = |who: usize| {
            let client = ledger.clients[who];
            Some(Grant { mode: client.mode, ..Grant::leased(&claims[who], client.token?, self.sent) })
        };
        match step {
            Step::Acquire(who) => {
                return Some(match record.acquire(&claims[who], now, self.sent) {
                    Ok(Attempt::Granted(grant)) => Answer::Granted(grant.token, grant.reserved),
                    Ok(Attempt::Busy { expires_in }) => Answer::Busy(expires_in.expect("not told how long")),
                    Err(error) if error.spends_claim() => Answer::Spent,
                    Err(error) => panic!("{error}"),
                });
            }
            Step::Renew(who, mode, lease) => {
                return Some(Answer::Renewal(record.renew(&Grant { mode, lease, ..grant(who)? }, now)));
            }
            Step::Convert(who, to) => return Some(Answer::Conversion(record.convert(&grant(who)?, to, now))),
            Step::Release(who) => return Some(Answer::Release(record.release(&grant(who)?, now))),
            Step::Force => {
                return Some(Answer::Forced(self.held(record.force_release(&claims[0].name, now))));
            }
            Step::Mark(who) => {
                record.leave_mark(&claims[who], now, PLACE);
                if let Some(mark) = record.mark.as_ref().filter(|_| !ledger.holds(who)) {
                    return Some(Answer::Marked(self.who(mark.claim()), mark.until()));
                }
            }
            Step::Wait(who) => record.join_queue(&claims[who], now),
            Step::Leave(who) => record.leave_queue(claims[who].id),
            Step::Withdraw(who) => record.withdraw(claims[who].id),
            Step::Forget if record.is_idle(now) => *record = Record::after(record.last_token()),
            Step::Columns => {
                let plain = record.plain(now)?;
                *record = Record::from(plain.clone());
                assert_eq!(record.plain(now), Some(plain), "the columns, read and written again");
            }
            Step::Forget | Step::Tick => return None,
        }
        Some(Answer::Done)
    }
}

#[derive(Clone)]
struct State {
    record: Record,
    ledger: Ledger,
}

impl State {
    /// The next state, if the step can be taken.
    fn after(&self, step: Step, scene: &Scene) -> Option<Self> {
        let mut next = self.clone();
        let State { record, ledger } = &mut next;
        if step == Step::Tick {
            ledger.now = ledger.now + TICK;
            return Some(next);
        }
        if !ledger.may_send(step) {
            return None;
        }
        let answer = scene.ask(record, ledger, step)?;
        ledger.note(step, &answer);
        let is_same = *record == self.record;
        if let Step::Acquire(who) = step {
            let would_grant = |at| self.record.would_grant(&scene.claims[who], at).unwrap_or(false);
            let is_granted = matches!(answer, Answer::Granted(..));
            assert_eq!(is_granted, would_grant(ledger.now), "another answer than foretold");
            assert!(answer != Answer::Spent || is_same, "a spent claim leaves something behind");
            if let Answer::Busy(left) = answer {
                let just_before = (ledger.now + left).as_micros() - 1;
                assert!(!would_grant(StoreTime::from_micros(just_before)), "L1: told to come late");
                assert!(is_same, "a refused claim leaves something behind");
            }
        }
        if !is_same {
            let mut twice = record.clone();
            let again = scene.ask(&mut twice, ledger, step);
            assert_eq!(*record, twice, "F1: changed again by the repeated request");
            let ends = matches!(answer, Answer::Release(_) | Answer::Forced(_));
            assert!(ends || again.as_ref() == Some(&answer), "F1: {again:?} after {answer:?}");
        }
        next.check_wake(self, scene);
        Some(next)
    }

    /// Each claim that a change lets in is told so.
    fn check_wake(&self, before: &Self, scene: &Scene) {
        let (ledger, wake) = (&self.ledger, self.record.wakes(&before.record, self.ledger.now));
        let turn = ledger.turn().filter(|turn| before.ledger.turn() != Some(*turn));
        let is_let_in = |who| !ledger.holds(who) && ledger.lets_in(who) && !before.ledger.lets_in(who);
        match before.ledger.marker() {
            Some(_) if !(0..CLAIMS).any(is_let_in) => {}
            Some(_) => assert_eq!(wake, Wake::All { bell: None }, "W7"),
            None => {
                let first = turn.map(|who| Wake::First { claim: scene.claims[who].id, bell: None });
                assert_eq!(wake, first.unwrap_or(Wake::Nobody), "W7");
            }
        }
    }

    /// The record tells what the ledger knows. Once everything has run out, the name is free, and nothing is left.
    fn check(&self, scene: &Scene) {
        let (State { record, ledger }, name) = (self, &scene.claims[0].name);
        let (now, later) = (ledger.now, ledger.now + PLACE);
        assert_eq!(scene.held(record.holders(name, now)), ledger.holders(), "the holders");
        let waiting = record.waiting(name, now).into_iter().map(|waiter| scene.who(waiter.claim.unwrap()));
        assert!(waiting.eq(ledger.waiting()), "W5: the waiters");
        assert_eq!(record.next(now).map(|id| scene.who(id)), ledger.turn(), "W5: whose turn it is");
        let marker = scene.claims.iter().position(|claim| record.has_mark(claim.id, now));
        assert_eq!(marker, ledger.marker(), "whose mark stands");
        assert_eq!(record.is_idle(now), ledger.is_idle(), "whether it is idle");
        let idle_from = record.idle_from(now);
        assert!(record.is_idle(idle_from) && (idle_from == now) == ledger.is_idle(), "W8: when it is idle");
        assert!(record.is_idle(later) && record.holders(name, later).is_empty(), "L1: never free again");
        let is_free = |claim| record.would_grant(claim, later).unwrap();
        assert!(scene.claims.iter().all(is_free), "L1: never granted again");
        let (newcomer, long_after) = (&scene.newcomer, later + PLACE * 10);
        let [mut used, mut new] = [record.clone(), Record::after(record.last_token())];
        used.join_queue(newcomer, long_after);
        assert_eq!(used.queue.places().count(), 1, "W8: a place outlasts its claim");
        let grants = [&mut used, &mut new].map(|record| record.acquire(newcomer, long_after, scene.sent));
        assert!(grants.iter().all(|grant| matches!(grant, Ok(Attempt::Granted(_)))), "L1: {grants:?}");
        assert_eq!(used, new, "W8: something outlasts its lease");
    }

    /// A hash of all that makes a difference.
    fn key(&self, scene: &Scene) -> u64 {
        let (Record { token, held, queue, mark, forced }, ledger) = (&self.record, &self.ledger);
        let number = |number: usize| u8::try_from(number).unwrap() + 1;
        let rank = |token: u64| {
            let tokens = ledger.clients.iter().filter_map(|client| client.token);
            number(tokens.filter(|one| one.get() < token).count())
        };
        let ticks = |until: StoreTime| number((0..2).filter(|n| TICK * *n < until.since(ledger.now)).count());
        let kind = |mode: Mode| match mode {
            Mode::Exclusive => 1,
            Mode::Shared => 2,
            Mode::Permit { take, .. } => 2 + number(usize::try_from(take.get()).unwrap()),
        };
        let mut clients: [_; CLAIMS] = array::from_fn(|who| {
            let (id, client) = (scene.claims[who].id, ledger.clients[who]);
            let held = held.iter().find(|held| held.claim == id);
            let place = queue.places().position(|(one, _)| one == id);
            let stands = ledger.line.iter().position(|(one, _)| *one == who);
            let mark = mark.as_ref().filter(|mark| mark.is_of(id));
            let forced = forced.iter().filter(|(one, _)| *one == id).map(|(_, until)| *until).max();
            [
                kind(client.wants),
                kind(client.mode),
                held.map_or(0, |held| kind(held.mode)),
                client.token.map_or(0, |token| rank(token.get())),
                held.map_or(0, |held| rank(held.token.get())),
                client.until.map_or(0, ticks),
                held.map_or(0, |held| ticks(held.until)),
                client.forced.map_or(0, ticks),
                forced.map_or(0, ticks),
                stands.map_or(0, number),
                place.map_or(0, number),
                stands.map_or(0, |at| ticks(ledger.line[at].1)),
                place.map_or(0, |at| ticks(queue.places().nth(at).unwrap().1)),
                ledger.mark.filter(|(one, _)| *one == who).map_or(0, |(_, until)| ticks(until)),
                mark.map_or(0, |mark| ticks(mark.until()) + 8 * u8::from(mark.is_alone())),
            ]
        });
        clients.sort_unstable();
        let mut hasher = DefaultHasher::new();
        hasher.write(clients.as_flattened());
        (rank(*token), *token < ledger.now.as_micros()).hash(&mut hasher);
        hasher.finish()
    }
}

/// Visits every state, the nearest first. At least so many must be found.
fn visit(wants: [Mode; CLAIMS], asking: usize, queues: bool, least: usize) {
    let scene = Scene::new(wants, asking, queues);
    let ledger = Ledger::new(wants, asking < CLAIMS, start());
    let mut ahead = VecDeque::from([(0, State { record: Record::default(), ledger })]);
    let mut known = HashSet::from([ahead[0].1.key(&scene)]);
    // Each state's last step, and the state before it.
    let mut ways = vec![(Step::Tick, 0)];
    let mut steps = 0;
    while let Some((at, state)) = ahead.pop_front() {
        for step in &scene.steps {
            let taken = catch_unwind(AssertUnwindSafe(|| {
                let next = state.after(*step, &scene)?;
                let is_new = known.insert(next.key(&scene));
                if is_new {
                    next.check(&scene);
                }
                Some((next, is_new))
            }));
            match taken {
                Ok(Some((next, is_new))) => {
                    steps += 1;
                    if is_new {
                        ahead.push_back((ways.len(), next));
                        ways.push((*step, at));
                    }
                }
                Ok(None) => {}
                Err(violation) => {
                    let before = iter::successors(Some(at), |at| Some(ways[*at].1));
                    let mut way: Vec<_> = before.take_while(|at| *at != 0).map(|at| ways[at].0).collect();
                    way.reverse();
                    let states = ways.len();
                    eprintln!("{wants:?}, {states} states: {step:?} after {way:?}, to {:#?}", state.record);
                    resume_unwind(violation);
                }
            }
        }
    }
    eprintln!("{wants:?}, {asking} of them: {} states, {steps} steps", ways.len());
    assert!(least <= ways.len(), "only {} states: the model is not what it is meant to be", ways.len());
}

#[test]
fn queue_keeps_contract_in_every_state() {
    visit([ALONE, ALONE, ALONE], 3, true, 3_000);
    visit([ALONE, ALONE, READER], 3, true, 9_600);
    visit([ALONE, READER, READER], 3, true, 10_400);
    visit([READER, READER, READER], 3, true, 3_600);
}

#[test]
fn queue_keeps_contract_in_every_state_with_permits() {
    let [one, two] = [1, 2].map(|take| permits(take, 2));
    visit([one, one, two], 3, true, 1_900);
    visit([ALONE, one, one], 3, true, 3_300);
    visit([READER, one, one], 3, true, 3_300);
    visit([READER, one, two], 3, true, 6_000);
}

#[test]
fn mark_keeps_contract_in_every_state() {
    visit([ALONE, ALONE, ALONE], 3, false, 2_800);
    visit([ALONE, ALONE, READER], 3, false, 9_400);
    visit([ALONE, READER, READER], 3, false, 10_400);
    visit([READER, READER, READER], 3, false, 3_900);
}

#[test]
fn contract_is_kept_in_every_state_after_stragglers() {
    for (queues, least) in [(true, [2_800, 6_100, 3_200, 1_600]), (false, [1_200, 2_700, 1_500, 700])] {
        visit([ALONE, ALONE, ALONE], 2, queues, least[0]);
        visit([ALONE, READER, ALONE], 2, queues, least[1]);
        visit([READER, READER, ALONE], 2, queues, least[2]);
        visit([permits(1, 2), permits(2, 2), ALONE], 2, queues, least[3]);
    }
}
