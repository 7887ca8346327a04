//! Looks for an order of the requests that explains the answers.

use super::{
    history::{Answer, History, Request},
    model::{Model, Rules},
};
use std::collections::HashSet;
use tenure_core::{Conversion, LatchStep, Mode};

/// A set of calls, by their numbers.
type Calls = u128;

/// A possible state of the store, after these calls have taken effect.
#[derive(Clone, Debug)]
struct Possible {
    model: Model,
    done: Calls,
}

/// Fails at the first answer that no order explains, with the calls until then.
pub(super) fn explain(history: &History, rules: Rules) -> Result<(), String> {
    let mut answers: Vec<(usize, usize)> = history
        .calls
        .iter()
        .enumerate()
        .filter_map(|(call, asked)| asked.answer.as_ref().map(|(at, _)| (*at, call)))
        .collect();
    answers.sort_unstable();
    let mut possible = vec![Possible { model: Model::new(rules), done: 0 }];
    for (at, call) in answers {
        possible = explained(history, rules, possible, at, call);
        if possible.is_empty() {
            let until = history.until(at);
            return Err(format!(
                "the answer to #{call} is wrong: no order of these requests gives this answer in `Record`\n{until}"
            ));
        }
    }
    Ok(())
}

/// All that the store may keep when `call` is answered.
fn explained(history: &History, rules: Rules, from: Vec<Possible>, at: usize, call: usize) -> Vec<Possible> {
    let (mut seen, mut reached, mut open) = (HashSet::new(), Vec::new(), from);
    while let Some(possible) = open.pop() {
        if !seen.insert((possible.done, possible.model.key())) {
            continue;
        }
        if possible.done & 1 << call != 0 {
            reached.push(possible);
            continue;
        }
        for (next, asked) in history.calls.iter().enumerate() {
            if asked.sent > at || possible.done & 1 << next != 0 {
                continue;
            }
            if let Request::Lapse { after, .. } = &asked.request
                && possible.done & 1 << after == 0
            {
                continue;
            }
            let answer = asked.answer.as_ref().map(|(_, answer)| answer);
            let mut taken = Possible { done: possible.done | 1 << next, ..possible.clone() };
            if taken.model.take(&asked.request, answer) {
                open.push(taken);
            } else if answer.is_some_and(|answer| is_excused(history, rules, next, answer)) {
                if let Some(Answer::Conversion(Conversion::Refused)) = answer {
                    taken.model = possible.model.clone();
                }
                open.push(taken);
            }
            if let (Request::Wait(claim), true) = (&asked.request, rules.fair) {
                let mut waiting = possible.clone();
                if waiting.model.join(claim) {
                    open.push(waiting);
                }
            }
        }
    }
    reached
}

/// Whether the store may give this answer although `Record` gives another, because of other requests at the same time.
fn is_excused(history: &History, rules: Rules, call: usize, answer: &Answer) -> bool {
    let request = &history.calls[call].request;
    let beside = |which: fn(&Request) -> bool| history.has_beside(call, rules.in_sessions, which);
    match answer {
        Answer::Busy => {
            // Without a queue, a store may keep newcomers from joining the holders while an exclusive claim waits.
            let stops = !rules.fair && request.wants().iter().any(|claim| claim.mode != Mode::Exclusive);
            rules.collides && beside(Request::moves_entries) || stops && beside(Request::waits_alone)
        }
        // The entry of such an attempt is in the way of an upgrade, or of another number of permits, even if it is refused.
        Answer::Conversion(Conversion::Refused) | Answer::Disagrees => {
            rules.collides && beside(Request::may_share)
        }
        // Finds the entries of a name, then reads each: one may be gone by then, and another new.
        Answer::Holders(_) | Answer::Waiting(_) => rules.in_sessions && beside(|_| true),
        // Takes the step, then looks.
        Answer::Latch(_) => {
            let in_two_steps = rules.in_sessions || matches!(request, Request::Latch(_, LatchStep::Remove));
            in_two_steps && beside(|_| true)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, time::Duration};
    use tenure_core::{Claim, ClaimId, Grant, HolderInfo, LossCause, Moment, Name, Release, Token};

    fn claim() -> Claim {
        Claim {
            id: ClaimId::new(),
            name: Name::new("a").unwrap(),
            mode: Mode::Exclusive,
            lease: Duration::from_secs(10),
            waits: false,
            reserve: 0,
            holder: Arc::new(HolderInfo::default()),
        }
    }

    fn granted(token: u64) -> Answer {
        Answer::Granted(vec![(Token::new(token).unwrap(), 0)])
    }

    fn released() -> Answer {
        Answer::Release(Release::Released { awaited: false })
    }

    fn grant(claim: &Claim, token: u64) -> Request {
        Request::Release(Grant::leased(claim, Token::new(token).unwrap(), Moment::now()))
    }

    fn is_explained(history: &History) -> bool {
        explain(history, Rules::default()).is_ok()
    }

    /// A claim that holds the name with token 1.
    fn held(mode: Mode) -> (History, Claim) {
        let (mut history, one) = (History::default(), Claim { mode, ..claim() });
        let first = history.begin(0, Request::Try(one.clone()));
        history.end(first, granted(1));
        (history, one)
    }

    /// The answer to a later claim.
    fn tries(history: &mut History, answer: Answer) {
        let second = history.begin(1, Request::Try(claim()));
        history.end(second, answer);
    }

    #[test]
    fn overlapping_grants_are_explained_only_around_a_release() {
        for releases in [true, false] {
            let (mut history, one) = held(Mode::Exclusive);
            let release = releases.then(|| history.begin(0, grant(&one, 1)));
            tries(&mut history, granted(2));
            if let Some(release) = release {
                history.end(release, released());
            }
            assert_eq!(is_explained(&history), releases);
        }
    }

    #[test]
    fn answer_counts_before_later_requests() {
        for overlaps in [true, false] {
            let (mut history, one) = held(Mode::Exclusive);
            let release = history.begin(0, grant(&one, 1));
            if !overlaps {
                history.end(release, released());
            }
            tries(&mut history, Answer::Busy);
            if overlaps {
                history.end(release, released());
            }
            assert_eq!(is_explained(&history), overlaps);
        }
    }

    #[test]
    fn request_without_an_answer_may_explain_a_refusal() {
        for asked in [true, false] {
            let mut history = History::default();
            if asked {
                history.begin(0, Request::Try(claim()));
            }
            tries(&mut history, Answer::Busy);
            assert_eq!(is_explained(&history), asked);
        }
    }

    #[test]
    fn refused_upgrade_is_excused_only_beside_an_attempt_that_collides() {
        use Mode::{Exclusive, Shared};
        for (collides, attempt) in
            [(true, Some(Shared)), (true, Some(Exclusive)), (true, None), (false, Some(Shared))]
        {
            let (mut history, one) = held(Shared);
            let Request::Release(held) = grant(&one, 1) else { unreachable!("it is a release") };
            let upgrade = history.begin(0, Request::Convert(held, Exclusive));
            if let Some(mode) = attempt {
                let attempt = history.begin(1, Request::Try(Claim { mode, ..claim() }));
                history.end(attempt, Answer::Busy);
            }
            history.end(upgrade, Answer::Conversion(Conversion::Refused));
            // The refused claim still shares the name.
            let later = history.begin(1, Request::Try(Claim { mode: Shared, ..claim() }));
            history.end(later, granted(2));
            let explained = explain(&history, Rules { collides, ..Rules::default() }).is_ok();
            assert_eq!(explained, collides && attempt == Some(Shared), "{collides} {attempt:?}");
        }
    }

    #[test]
    fn takeover_of_a_free_name_is_excused_only_after_a_refused_attempt_that_collides() {
        for (collides, is_refused) in [(true, true), (true, false), (false, true)] {
            let (mut history, one) = held(Mode::Exclusive);
            let Request::Release(held) = grant(&one, 1) else { unreachable!("it is a release") };
            if is_refused {
                tries(&mut history, Answer::Busy);
            }
            let release = history.begin(0, Request::Release(held.clone()));
            history.end(release, released());
            let renewal = history.begin(0, Request::Renew(held));
            history.end(renewal, Answer::Lost(LossCause::TakenOver));
            let explained = explain(&history, Rules { collides, ..Rules::default() }).is_ok();
            assert_eq!(explained, collides && is_refused, "{collides} {is_refused}");
        }
    }

    #[test]
    fn tokens_must_rise() {
        for next in [2, 1] {
            let (mut history, one) = held(Mode::Exclusive);
            let release = history.begin(0, grant(&one, 1));
            history.end(release, released());
            tries(&mut history, granted(next));
            assert_eq!(is_explained(&history), next > 1);
        }
    }
}
