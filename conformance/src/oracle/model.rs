//! The state of a store, according to [`Record`].

use super::history::{Answer, Request};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tenure_core::{
    Attempt, Claim, ClaimId, Conversion, Grant, LossCause, Mode, Moment, Name, Release, Renewal, Token,
    record::{LatchRecord, Record, StoreTime},
};

/// The store's properties that decide which answers it may give.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    /// Clients are served in the order in which they came.
    pub(super) fair: bool,
    /// An attempt may be refused because of another request at the same time: see
    /// [`Subject::attempts_collide`](crate::Subject::attempts_collide).
    pub(super) collides: bool,
    /// Grants end with sessions.
    pub(super) in_sessions: bool,
}

/// The names and latches of one history.
#[derive(Clone, Debug)]
pub(super) struct Model {
    sent: Moment,
    names: BTreeMap<Name, Known>,
    latches: BTreeMap<Name, LatchRecord>,
    /// The record's grants, with the record's tokens, and the store's own tokens.
    grants: BTreeMap<ClaimId, (Grant, Option<Token>)>,
    withdrawn: BTreeSet<ClaimId>,
    /// A store may remember longer than the record that a claim was forced out.
    forced: BTreeSet<ClaimId>,
    /// Where attempts collide, a forced release may end a part of a claim that is granted afterwards.
    forced_names: BTreeSet<Name>,
    /// Where attempts collide, a minority of the servers may keep the vote of a refused attempt for a while.
    refused_names: BTreeSet<Name>,
    rules: Rules,
}

#[derive(Clone, Debug)]
struct Known {
    record: Record,
    /// Stands still while no lease lapses.
    now: StoreTime,
    /// The store's token of the last grant whose answer is known.
    last: Option<Token>,
    /// The claims in the queue.
    queue: Vec<Claim>,
}

impl Default for Known {
    fn default() -> Self {
        let now = StoreTime::from_micros(1_700_000_000_000_000);
        Self { record: Record::default(), now, last: None, queue: Vec::new() }
    }
}

impl Model {
    pub(super) fn new(rules: Rules) -> Self {
        let (names, latches, grants) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            sent: Moment::now(),
            names,
            latches,
            grants,
            withdrawn: BTreeSet::new(),
            forced: BTreeSet::new(),
            forced_names: BTreeSet::new(),
            refused_names: BTreeSet::new(),
            rules,
        }
    }

    /// All that later answers depend on.
    pub(super) fn key(&self) -> String {
        let tokens = self.grants.iter().map(|(claim, (grant, token))| (claim, grant.token, token));
        let tokens: Vec<_> = tokens.collect();
        format!("{:?} {:?} {tokens:?}", self.names, self.latches)
    }

    /// Takes the request, which got this answer. Returns whether it may have got it; without an answer, whether the
    /// request may have changed anything.
    pub(super) fn take(&mut self, request: &Request, answer: Option<&Answer>) -> bool {
        match request {
            Request::Try(claim) | Request::Wait(claim) => self.acquire(std::slice::from_ref(claim), answer),
            Request::TryAll(_) if answer == Some(&Answer::Apart) => true,
            Request::TryAll(claims) => self.acquire(claims, answer),
            Request::Release(grant) => self.release(grant, answer),
            Request::Renew(grant) => self.renew(grant, answer),
            Request::Convert(grant, to) => self.convert(grant, *to, answer),
            Request::Withdraw(Claim { id, name, .. }) => {
                let known = self.known(name);
                known.queue.retain(|waiting| waiting.id != *id);
                known.record.withdraw(*id);
                self.withdrawn.insert(*id);
                true
            }
            Request::Force(name) => self.force(name, answer),
            Request::Holders(name) => {
                let known = self.known(name);
                let held = known.record.holders(name, known.now);
                matches!(answer, Some(Answer::Holders(told)) if self.tells(told, &held))
            }
            Request::Waiting(name) => {
                let known = self.known(name);
                let waiting = known.record.waiting(name, known.now);
                let waiting: Vec<_> = waiting.into_iter().filter_map(|waiter| waiter.claim).collect();
                matches!(answer, Some(Answer::Waiting(told)) if *told == waiting)
            }
            Request::Latch(name, step) => {
                let state = self.latches.entry(name.clone()).or_default().step(step);
                answer.is_none_or(|answer| *answer == Answer::Latch(state))
            }
            Request::Lapse { name, lease, .. } => {
                self.lapse(name, *lease);
                true
            }
        }
    }

    fn force(&mut self, name: &Name, answer: Option<&Answer>) -> bool {
        let in_sessions = self.rules.in_sessions;
        let known = self.known(name);
        let held = known.record.holders(name, known.now);
        if in_sessions {
            // Finds the sessions of the holders, then ends them. By then some may have released the name. A claim may ask
            // again in another session.
            let of_held = held.iter().filter_map(|holder| holder.claim);
            let ended: Vec<ClaimId> = match answer {
                Some(Answer::Holders(told)) => told.iter().filter_map(|(claim, ..)| *claim).collect(),
                _ => of_held.collect(),
            };
            for claim in &ended {
                known.record.withdraw(*claim);
            }
            return matches!(answer, Some(Answer::Holders(_))) || answer.is_none() && !ended.is_empty();
        }
        known.record.force_release(name, known.now);
        if self.rules.collides {
            self.forced_names.insert(name.clone());
        }
        self.forced.extend(held.iter().filter_map(|holder| holder.claim));
        match answer {
            // Votes that are no grant yet, or no longer, end too.
            Some(Answer::Holders(told)) => self.rules.collides || self.tells(told, &held),
            Some(_) => false,
            None => !held.is_empty(),
        }
    }

    /// The claim takes its place in the queue. Returns whether it had none and may have one (clause W3).
    pub(super) fn join(&mut self, claim: &Claim) -> bool {
        if self.withdrawn.contains(&claim.id) {
            return false;
        }
        let known = self.known(&claim.name);
        known.record.join_queue(claim, known.now);
        let joins =
            known.record.has_place(claim.id, known.now) && !known.queue.iter().any(|one| one.id == claim.id);
        if joins {
            known.queue.push(claim.clone());
        }
        joins
    }

    fn known(&mut self, name: &Name) -> &mut Known {
        self.names.entry(name.clone()).or_default()
    }

    fn holds(&self, claim: &Claim) -> bool {
        self.names.get(&claim.name).is_some_and(|known| {
            known.record.holders(&claim.name, known.now).iter().any(|holder| holder.claim == Some(claim.id))
        })
    }

    /// Grants all of the claims, or none.
    fn acquire(&mut self, claims: &[Claim], answer: Option<&Answer>) -> bool {
        let mut refusals = Vec::new();
        for claim in claims {
            let known = self.known(&claim.name);
            match known.record.would_grant(claim, known.now) {
                Ok(true) => {}
                Ok(false) => refusals.push([true, false]),
                // A store may look at the holders first.
                Err(error) if error.spends_claim() => refusals.push([true, true]),
                Err(_) => refusals.push([false, true]),
            }
        }
        // If several names are refused, the store gives the reason of any.
        if !refusals.is_empty() {
            if self.rules.collides {
                self.refused_names.extend(claims.iter().map(|claim| claim.name.clone()));
            }
            return match answer {
                Some(Answer::Busy) => claims.len() > 1 || refusals[0][0],
                Some(Answer::Disagrees) => refusals.iter().any(|[_, disagrees]| *disagrees),
                _ => false,
            };
        }
        let mut lease = None;
        let tokens: Vec<Option<(Token, u32)>> = match answer {
            Some(Answer::HandedOver(token, reserved, stands)) if claims.len() == 1 => {
                lease = Some(*stands);
                vec![Some((*token, *reserved))]
            }
            Some(Answer::Granted(tokens)) if tokens.len() == claims.len() => {
                tokens.iter().copied().map(Some).collect()
            }
            Some(_) => return false,
            None => vec![None; claims.len()],
        };
        let mut changes = false;
        for (claim, token) in claims.iter().zip(tokens) {
            let (knew, sent) = (self.holds(claim), self.sent);
            changes |= !knew;
            let claim = &Claim { lease: lease.unwrap_or(claim.lease), ..claim.clone() };
            let known = self.known(&claim.name);
            let Ok(Attempt::Granted(grant)) = known.record.acquire(claim, known.now, sent) else {
                return false;
            };
            known.queue.retain(|waiting| waiting.id != claim.id);
            if !self.tells_token(claim, grant, knew, token) {
                return false;
            }
        }
        answer.is_some() || changes
    }

    /// Whether the store may give the claim this token, and these reserved ones.
    fn tells_token(&mut self, claim: &Claim, grant: Grant, knew: bool, told: Option<(Token, u32)>) -> bool {
        let before = if knew { self.grants.get(&claim.id).and_then(|(_, token)| *token) } else { None };
        self.grants.insert(claim.id, (grant, told.map(|(token, _)| token).or(before)));
        let Some((token, reserved)) = told else { return true };
        let known = self.known(&claim.name);
        let first = token.get().checked_sub(u64::from(reserved));
        let rises =
            before.is_some() || known.last.is_none_or(|last| first.is_some_and(|first| last.get() < first));
        // A token that was granted without an answer may be older than the last token.
        if rises {
            known.last = known.last.max(Some(token));
        }
        (rises || knew)
            && before.is_none_or(|before| before == token)
            && [0, claim.reserve].contains(&reserved)
    }

    /// The record's own grant of this claim, as the client knows it. `None` if it has granted none.
    fn own(&self, grant: &Grant) -> Option<Grant> {
        let (own, _) = self.grants.get(&grant.claim)?;
        Some(Grant { mode: grant.mode, lease: grant.lease, ..own.clone() })
    }

    fn release(&mut self, grant: &Grant, answer: Option<&Answer>) -> bool {
        let Some(own) = self.own(grant) else { return false };
        let known = self.known(&grant.name);
        match (known.record.release(&own, known.now), answer) {
            (Release::Released { .. }, None | Some(Answer::Release(Release::Released { .. }))) => true,
            (Release::Lost(why), Some(Answer::Release(Release::Lost(told)))) => {
                self.may_tell(grant, *told, why)
            }
            _ => false,
        }
    }

    fn renew(&mut self, grant: &Grant, answer: Option<&Answer>) -> bool {
        let Some(own) = self.own(grant) else { return false };
        let known = self.known(&grant.name);
        match (known.record.renew(&own, known.now), answer) {
            (_, None) | (Renewal::Renewed, Some(Answer::Done)) => true,
            (Renewal::Lost(why), Some(Answer::Lost(told))) => self.may_tell(grant, *told, why),
            _ => false,
        }
    }

    fn convert(&mut self, grant: &Grant, to: Mode, answer: Option<&Answer>) -> bool {
        let Some(own) = self.own(grant) else { return false };
        let known = self.known(&grant.name);
        match (known.record.convert(&own, to, known.now), answer) {
            (Conversion::Converted, None) => true,
            (Conversion::Lost(why), Some(Answer::Conversion(Conversion::Lost(told)))) => {
                self.may_tell(grant, *told, why)
            }
            (conversion, Some(Answer::Conversion(told))) => conversion == *told,
            _ => false,
        }
    }

    /// Time passes at one name, until a lease of this length has expired. The others are far longer, and waiters go on
    /// asking.
    fn lapse(&mut self, name: &Name, lease: Duration) {
        let known = self.known(name);
        known.now = known.now + lease + Duration::from_millis(1);
        for claim in known.queue.clone() {
            known.record.join_queue(&claim, known.now);
        }
    }

    /// Whether the store may tell of these holders.
    fn tells(&self, told: &[(Option<ClaimId>, Option<Token>, Mode)], held: &[tenure_core::Holder]) -> bool {
        let is_told = |holder: &tenure_core::Holder| {
            let token = holder.claim.and_then(|claim| self.grants.get(&claim)).and_then(|(_, token)| *token);
            // Several servers that grant one claim may not have agreed on its token yet.
            let fits = |shown: Option<Token>| {
                token.is_none() || shown == token || self.rules.collides && shown < token
            };
            told.iter()
                .any(|(claim, shown, mode)| *claim == holder.claim && *mode == holder.mode && fits(*shown))
        };
        told.len() == held.len() && held.iter().all(is_told)
    }

    /// Whether a store may give this cause. One that cannot tell says that the lease has expired; of several servers, those
    /// that answer first may know only who holds the name now, or has just tried to. In sessions, the client may know more than the record,
    /// and the store less.
    fn may_tell(&self, grant: &Grant, told: LossCause, why: LossCause) -> bool {
        let may_be_forced = self.forced.contains(&grant.claim) || self.forced_names.contains(&grant.name);
        let is_forced = told == LossCause::Forced && may_be_forced;
        let is_taken = || {
            let by_some = self.is_held(&grant.name) || self.refused_names.contains(&grant.name);
            told == LossCause::TakenOver && self.rules.collides && by_some
        };
        told == why || told == LossCause::Expired || is_forced || self.rules.in_sessions || is_taken()
    }

    fn is_held(&self, name: &Name) -> bool {
        self.names.get(name).is_some_and(|known| !known.record.holders(name, known.now).is_empty())
    }
}
