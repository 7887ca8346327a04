//! The clients' view: a ledger notes the answers that they got, and checks the next one against the contract. It never
//! sees the record.

use super::step::{ALONE, Answer, CLAIMS, Held, LEASE, PLACE, Step, reserve};
use crate::{
    contract::{LossCause, Mode, Token},
    record::StoreTime,
    store::{Conversion, Release, Renewal},
};

#[derive(Clone)]
pub(super) struct Ledger {
    pub(super) now: StoreTime,
    pub(super) clients: [Client; CLAIMS],
    /// The claims in the queue, each with the end of its place. Until the next grant, a claim can renew a place that has
    /// ended.
    pub(super) line: Vec<(usize, StoreTime)>,
    /// In a store without a queue: whose mark stands, and until when.
    pub(super) mark: Option<(usize, StoreTime)>,
    pub(super) greatest: u64,
    /// Whether a claim may be requested again once its grant has ended, as by a straggler.
    straggles: bool,
}

/// The client of one claim.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) wants: Mode,
    /// The mode and the token of its last grant.
    pub(super) mode: Mode,
    pub(super) token: Option<Token>,
    /// When the lease of that grant ends, or has ended. `None` if something else has ended the grant.
    pub(super) until: Option<StoreTime>,
    /// When the lease would have ended, if the grant was released by force.
    pub(super) forced: Option<StoreTime>,
}

/// Whether these may hold a name together: one alone, readers, or permits of which there are enough.
fn fit(modes: &[Mode]) -> bool {
    let take = |mode: &Mode| if let Mode::Permit { take, .. } = mode { Some(take.get()) } else { None };
    match modes {
        [] | [_] => true,
        [Mode::Exclusive, ..] => false,
        [Mode::Shared, ..] => modes.iter().all(|mode| *mode == Mode::Shared),
        [Mode::Permit { of, .. }, ..] => {
            modes.iter().map(take).sum::<Option<u32>>().is_some_and(|taken| taken <= of.get())
        }
    }
}

impl Ledger {
    pub(super) fn new(wants: [Mode; CLAIMS], straggles: bool, now: StoreTime) -> Self {
        let client = |wants| Client { wants, mode: wants, token: None, until: None, forced: None };
        Self { now, clients: wants.map(client), line: Vec::new(), mark: None, greatest: 0, straggles }
    }

    pub(super) fn holds(&self, who: usize) -> bool {
        self.clients[who].until > Some(self.now)
    }

    /// Whether a lease of the claim still runs that was ended by force.
    fn is_spent(&self, who: usize) -> bool {
        self.clients[who].forced > Some(self.now)
    }

    pub(super) fn holders(&self) -> Vec<Held> {
        let tell = |who: usize| {
            let Client { mode, token, until, .. } = self.clients[who];
            (who, mode, token.unwrap(), until.unwrap().since(self.now))
        };
        (0..CLAIMS).filter(|who| self.holds(*who)).map(tell).collect()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.line.iter().filter(|(_, until)| self.now < *until).map(|(who, _)| *who)
    }

    /// The claim whose turn it is: the first in the queue, if the holders let it in.
    pub(super) fn turn(&self) -> Option<usize> {
        self.waiting().next().filter(|first| self.lets_in(*first))
    }

    /// The claim whose mark stands.
    pub(super) fn marker(&self) -> Option<usize> {
        self.mark.filter(|(_, until)| self.now < *until).map(|(who, _)| who)
    }

    /// Whether no claim holds the name or waits for it, and no lease runs that was ended by force.
    pub(super) fn is_idle(&self) -> bool {
        (0..CLAIMS).all(|who| !self.holds(who) && !self.is_spent(who))
            && self.waiting().next().is_none()
            && self.marker().is_none()
    }

    /// Whether a claim that does not hold the name must be granted it: it fits beside the holders (clause X1) and the
    /// waiters ahead of it (clause W5), and passes no writer's mark.
    pub(super) fn lets_in(&self, who: usize) -> bool {
        let wants = self.clients[who].wants;
        let mut modes = vec![wants];
        modes.extend((0..CLAIMS).filter(|other| self.holds(*other)).map(|other| self.clients[other].mode));
        let last = self.line.iter().position(|(other, _)| *other == who).unwrap_or(self.line.len());
        let ahead = self.line[..last].iter().filter(|(_, until)| self.now < *until);
        modes.extend(ahead.map(|(other, _)| self.clients[*other].wants));
        let is_kept_out =
            |marker: usize| marker != who && self.clients[marker].wants == ALONE && wants != ALONE;
        fit(&modes) && !self.marker().is_some_and(is_kept_out)
    }

    /// Whether a client may send this request: one that needs a grant, or relies on a mode, was granted it.
    pub(super) fn may_send(&self, step: Step) -> bool {
        match step {
            Step::Acquire(who) | Step::Wait(who) | Step::Mark(who) => {
                self.straggles || self.clients[who].token.is_none() || self.holds(who)
            }
            Step::Renew(who, mode, _) => {
                let Client { wants, mode: has, token, .. } = self.clients[who];
                token.is_some() && [wants, has, Mode::Shared].contains(&mode)
            }
            Step::Convert(who, _) | Step::Release(who) => self.clients[who].token.is_some(),
            _ => true,
        }
    }

    /// Notes the answer, which must be one that the contract allows.
    pub(super) fn note(&mut self, step: Step, answer: &Answer) {
        let now = self.now;
        match (step, answer) {
            (Step::Acquire(who), Answer::Granted(token, reserved)) => {
                let Client { wants, token: before, .. } = self.clients[who];
                assert_eq!(*reserved, reserve(wants));
                if self.holds(who) {
                    assert_eq!(before, Some(*token), "F1: granted again with another token");
                    self.clients[who].until = self.clients[who].until.max(Some(now + LEASE));
                    return;
                }
                assert!(self.lets_in(who), "X1, W5: granted beside a holder, past a waiter or past a mark");
                assert!(!self.is_spent(who), "U1: granted again to a holder who lost it by force");
                let first = token.get() - u64::from(*reserved);
                assert!(self.greatest < first, "T1: {first} after {}", self.greatest);
                assert!(now.as_micros() <= first, "T2: {first} at {now:?}");
                self.greatest = token.get();
                let (token, until) = (Some(*token), Some(now + LEASE));
                self.clients[who] = Client { wants, mode: wants, token, until, forced: None };
                self.line.retain(|(other, until)| *other != who && now < *until);
                self.mark.take_if(|(marker, _)| wants == ALONE || *marker == who);
            }
            (Step::Acquire(who), Answer::Busy(left)) => {
                assert!(!self.holds(who), "L1: refused to its holder");
                assert!(!self.lets_in(who) && !self.is_spent(who), "refused although nothing is in the way");
                assert!(!left.is_zero(), "refused because of something that is over");
            }
            (Step::Acquire(who), Answer::Spent) => {
                assert!(self.is_spent(who) && !self.holds(who), "spent, but not by force");
            }
            (Step::Wait(who) | Step::Mark(who), Answer::Done) if self.holds(who) => {}
            (Step::Wait(who), Answer::Done) => match self.line.iter_mut().find(|(other, _)| *other == who) {
                Some((_, until)) => *until = now + PLACE,
                None => self.line.push((who, now + PLACE)),
            },
            (Step::Leave(who), Answer::Done) => self.line.retain(|(other, _)| *other != who),
            (Step::Mark(who), Answer::Marked(marker, until)) => {
                let mark = Some((*marker, *until));
                assert!(mark == Some((who, now + PLACE)) || mark == self.mark, "a mark of no request");
                let is_writer = |who: usize| self.clients[who].wants == ALONE;
                let waits = is_writer(who) || self.marker().is_some_and(is_writer);
                assert_eq!(is_writer(*marker), waits, "a writer is forgotten, or remembered too long");
                let lasts = PLACE / 2 <= until.since(now);
                assert!(lasts || is_writer(*marker) && !is_writer(who), "the mark ends too soon");
                self.mark = mark;
            }
            (Step::Renew(who, mode, lease), Answer::Renewal(renewal)) => {
                let Client { mode: has, .. } = self.clients[who];
                let covers = has == ALONE || has == mode;
                match *renewal {
                    Renewal::Lost(cause) if !self.holds(who) => self.explain(who, mode, cause),
                    Renewal::Lost(cause) => {
                        assert!(!covers && cause == LossCause::Forgotten, "F4: {cause:?}, but held {has}");
                    }
                    Renewal::Renewed => {
                        assert!(self.holds(who), "L2: a lost grant is renewed");
                        assert!(covers, "F4: renewed {mode}, but held {has}");
                        self.clients[who].until = Some(now + lease);
                    }
                    Renewal::Unanswered => panic!("no answer"),
                }
            }
            (Step::Convert(who, to), Answer::Conversion(conversion)) => {
                let is_alone = self.holders().iter().all(|(other, ..)| *other == who);
                match *conversion {
                    Conversion::Lost(cause) => self.explain(who, self.clients[who].mode, cause),
                    Conversion::Refused => assert!(self.holds(who) && to == ALONE && !is_alone, "refused"),
                    Conversion::Converted => {
                        assert!(self.holds(who), "L2: a lost grant is converted");
                        assert!(to != ALONE || is_alone, "X1: upgraded beside another holder");
                        self.clients[who].mode = to;
                    }
                }
            }
            (Step::Release(who), Answer::Release(Release::Lost(cause))) => {
                self.explain(who, self.clients[who].mode, *cause);
            }
            (Step::Release(who), Answer::Release(Release::Released { awaited })) => {
                assert!(self.holds(who), "U2: a lost grant is released");
                assert_eq!(*awaited, self.marker().is_some(), "whether a client waits");
                self.clients[who].until = None;
            }
            (Step::Withdraw(who), Answer::Done) => {
                self.clients[who].until = None;
                self.line.retain(|(other, _)| *other != who);
                self.mark.take_if(|(marker, _)| *marker == who);
            }
            (Step::Force, Answer::Forced(holders)) => {
                assert_eq!(*holders, self.holders(), "others than the holders");
                for (who, ..) in holders {
                    self.clients[*who].forced = self.clients[*who].until.take();
                }
            }
            (Step::Forget, Answer::Done) => self.line.clear(),
            (Step::Columns, Answer::Done) => {}
            (step, answer) => panic!("{step:?} is answered {answer:?}"),
        }
    }

    /// Checks the cause of a loss (clause L5), given to a client that relies on this mode.
    fn explain(&self, who: usize, relies_on: Mode, cause: LossCause) {
        let Client { token, forced, .. } = self.clients[who];
        assert!(!self.holds(who), "L5: {cause:?}, and still held");
        let is_taken = self.holders().iter().any(|(_, mode, ..)| *mode == ALONE);
        let is_followed = token.unwrap().get() < self.greatest;
        assert!(!self.is_spent(who) || cause == LossCause::Forced, "L5: {cause:?}, and not by force");
        match cause {
            LossCause::Forced => assert!(forced.is_some(), "L5: not by force"),
            LossCause::TakenOver => assert!(is_taken || is_followed, "L5: not taken over"),
            LossCause::Expired => {
                assert!(!(is_taken || relies_on == ALONE && is_followed), "L5: taken over");
            }
            other => panic!("L5: {other:?}"),
        }
    }
}
