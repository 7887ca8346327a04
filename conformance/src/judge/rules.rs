//! The rules, one function each.

use super::{
    Broken, Effect, Event, Stamp, Violation, What,
    account::{Account, Ask, Closing, Hold},
    stamp::Span,
};
use std::time::Duration;
use tenure_core::{LossCause, lease};

/// How far apart two readings of a machine's clocks are at most where they should be one.
const READINGS: Duration = Duration::from_millis(1);

/// Clause T1: a later grant's token is greater.
///
/// The order of grants is the store's, and the notes tell it well enough. If the later note was of the earlier grant, that grant
/// had ended before it was noted: by its own deadline, or because the store was made to forget. Otherwise the order of
/// notes is the store's. Readers, and holders of permits that fit, may stand beside each other, so the order of their
/// notes says nothing. The holds of a chain follow each other in one client, so the order of theirs is certain.
pub(super) fn tokens(account: &Account<'_>, name: &str, holds: &[Hold<'_>], found: &mut Vec<Violation>) {
    if holds.iter().any(|hold| hold.token == 0) {
        return;
    }
    // The greatest token so far, at each grant.
    let mut greatest: Vec<&Hold<'_>> = Vec::with_capacity(holds.len());
    for later in holds {
        let best = greatest.last().copied();
        greatest.push(best.filter(|best| best.token >= later.token).unwrap_or(later));
        // A killed program's line may be heard after its lock was free again.
        let born_dead = later.words.first().is_some_and(|(at, until)| until <= at)
            || later.died.is_some_and(|died| died <= later.granted);
        let doubt = |earlier: &Hold<'_>| {
            let since = earlier.origin.begun().min(later.origin.begun());
            later.mode().admits([earlier.mode()]) || account.forgets(name, since, later.granted)
        };
        let earlier = match best {
            Some(best) if best.token >= later.token && !born_dead && !doubt(best) => best,
            Some(best) if best.token >= later.token => {
                // In doubt, only what was granted before the other was asked for was earlier for certain, and the hold
                // before it in its chain.
                let asked = later.origin.asked.unwrap_or(Stamp::ZERO);
                let before = holds.partition_point(|hold| hold.granted < asked).min(greatest.len() - 1);
                let granted_before = before.checked_sub(1).map(|last| greatest[last]);
                let certain = [granted_before, later.follows.map(|before| &holds[before])];
                match certain.into_iter().flatten().find(|certain| certain.token >= later.token) {
                    Some(certain) => certain,
                    None => continue,
                }
            }
            _ => continue,
        };
        let what = format!(
            "{} was granted {name:?} with token {} after {} had been granted it with token {}",
            later.client, later.token, earlier.client, earlier.token
        );
        let (clients, at) = ([earlier.client, later.client], later.granted);
        found.push(Violation::new(Broken::TokenDidNotRise, name, &clients, earlier.granted, (at, at), what));
    }
}

/// Clause L5: a loss is noticed at the deadline, and no client holds past it.
pub(super) fn losses(
    account: &Account<'_>,
    name: &str,
    holds: &[Hold<'_>],
    allowance: Duration,
    found: &mut Vec<Violation>,
) {
    for hold in holds {
        let limit = |until| account.at_the_latest(hold.client, until, allowance);
        // A guard that was asked past its deadline and still said yes: nothing excuses that, since the time is from before
        // it was asked …
        let late_word = hold.words.iter().skip(1).find(|(at, until)| at.since(*until) > READINGS);
        // … or one that was handed out far too late …
        let late_grant = hold.words.first().filter(|(at, until)| *at > limit(*until));
        let late_word = late_word.or(late_grant).copied();
        // … or one that said nothing for too long.
        let noticed = hold.noticed().or(hold.died).unwrap_or(account.end);
        let late = late_word.or((noticed > limit(hold.until())).then_some((noticed, hold.until())));
        let Some((at, until)) = late else { continue };
        let when = match (late_word, hold.noticed()) {
            (Some(_), _) => "still said that it held",
            (None, Some(_)) => "noticed it only",
            (None, None) => "had not noticed it",
        };
        let (Hold { client, token, .. }, late) = (hold, Span(at.since(until)));
        let what = format!(
            "the deadline of {client} for {name:?}, token {token}, passed, and it {when} {late} later"
        );
        let since = hold.word_before(until);
        found.push(Violation::new(Broken::LossLate, name, &[hold.client], since, (until, at), what));
    }
}

/// Clause U2: releasing a lost grant is an error.
///
/// A grant is lost for certain once another client has a later one that could not stand beside it. A release within a
/// chain does not ask the store. A master that was deposed meanwhile knows of its own grants only. A release that is sent
/// again cannot tell a lease that the clock ended early from one that it ended itself, once the later holder has gone.
pub(super) fn releases(account: &Account<'_>, name: &str, holds: &[Hold<'_>], found: &mut Vec<Violation>) {
    for hold in holds.iter().filter(|hold| hold.token > 0) {
        let (Some(at), Some(released)) = (hold.releases, hold.released) else { continue };
        if holds.iter().filter(|other| other.claim == hold.claim).count() > 1 {
            continue;
        }
        let overtakes = |other: &&Hold<'_>| {
            let gone = other.releases.unwrap_or(other.until()) < released;
            other.token > hold.token
                && !(gone && clock_ended(account, hold, other.granted))
                && other.granted < at
                && !other.mode().admits([hold.mode_at(other.granted)])
        };
        let Some(next) = holds.iter().find(overtakes) else { continue };
        // Until the fault is over, the deposed master may go on answering.
        if account.spells_in(next.granted, at).any(|spell| spell.failed_over) {
            continue;
        }
        let what = format!(
            "{} released {name:?}, token {}, without an error, and {} had been granted it with token {}",
            hold.client, hold.token, next.client, next.token
        );
        let clients = [hold.client, next.client];
        found.push(Violation::new(Broken::ReleasedLost, name, &clients, next.granted, (at, at), what));
    }
}

/// Whether the store's clock may have ended the lease early by then. One that was renewed since stands by the new clock.
fn clock_ended(account: &Account<'_>, hold: &Hold<'_>, by: Stamp) -> bool {
    let mut spells = account.spells_in(hold.origin.begun(), by);
    spells.any(|spell| *spell.effect == Effect::EndsLeases && by <= spell.to + hold.lease)
}

/// Clause L1: no grant ends before its lease, unless a client ended it.
///
/// A holder that hears before its deadline that its grant has ended had it taken from it. Sessions may end at any time, and
/// people may use force: those causes speak for themselves.
pub(super) fn early_ends(account: &Account<'_>, name: &str, holds: &[Hold<'_>], found: &mut Vec<Violation>) {
    for hold in holds {
        let early = hold.told.filter(|(at, _)| *at < hold.until() && hold.until() < Stamp::NEVER);
        let Some((at, cause)) = early else { continue };
        let causes = [LossCause::SessionEnded, LossCause::Forced, LossCause::MaxHold];
        // A successor may be told of what was forgotten before it asked.
        let mut spells = account.spells_in(hold.origin.begun(), at);
        let forgotten = spells.any(|spell| spell.loses(name)) || clock_ended(account, hold, at);
        if forgotten || causes.iter().any(|allowed| allowed.as_str() == cause) {
            continue;
        }
        let (Hold { client, token, .. }, left) = (hold, Span(hold.until().since(at)));
        let what = format!(
            "{client} was told that its grant of {name:?}, token {token}, had ended ({cause}), {left} before its deadline"
        );
        let since = hold.word_before(at);
        found.push(Violation::new(Broken::LostEarly, name, &[hold.client], since, (at, at), what));
    }
}

/// Clause W5: a grant is handed on only so often in a row, only within a third of the lease after the request for it,
/// and only to a waiter that asked for the same lease under the same label.
pub(super) fn chains(name: &str, holds: &[Hold<'_>], successors: u32, found: &mut Vec<Violation>) {
    for hold in holds {
        let Some(before) = hold.follows.map(|before| &holds[before]) else { continue };
        let origin = hold.origin;
        // The request was sent before the grant was noted, and the grant handed on after the release was.
        let after = before.releases.map(|releases| releases.since(origin.granted));
        // Each hold uses up one of the tokens that the grant reserved.
        let handed_on = hold.token.saturating_sub(origin.token);
        let too_often = handed_on > u64::from(successors);
        let third = lease::renewal_period(hold.lease) + READINGS;
        let too_late = after.is_some_and(|after| after >= third);
        let suits = (hold.lease, hold.label) == (before.lease, before.label);
        if suits && !too_often && !too_late {
            continue;
        }
        let (Hold { client, label, token, granted: at, .. }, after) = (hold, Span(after.unwrap_or_default()));
        let what = format!(
            "{} ({:?}) handed {name:?} on to {client} ({label:?}) with token {token}, {after} after the grant with \
             token {}; {successors} successors are allowed, within a third of the lease, with the same lease and label",
            before.client, before.label, origin.token
        );
        let clients = [before.client, hold.client];
        found.push(Violation::new(Broken::WrongSuccessor, name, &clients, origin.granted, (*at, *at), what));
    }
}

/// Clause U3: once `close` has returned, nothing is granted.
pub(super) fn after_close(
    account: &Account<'_>,
    name: &str,
    holds: &[Hold<'_>],
    allowance: Duration,
    found: &mut Vec<Violation>,
) {
    for hold in holds {
        let Some(closed) = account.closed_before(hold.client, hold.granted) else { continue };
        let asked_after = hold.asked.is_some_and(|asked| asked > closed);
        // A grant that came before may be noted a little after.
        if !asked_after && hold.granted <= account.at_the_latest(hold.client, closed, allowance) {
            continue;
        }
        let (Hold { client, token, granted, .. }, late) = (hold, Span(hold.granted.since(closed)));
        let what =
            format!("{client} was granted {name:?} with token {token}, {late} after its locks were closed");
        let (clients, span) = ([hold.client], (closed, *granted));
        found.push(Violation::new(Broken::GrantAfterClose, name, &clients, closed, span, what));
    }
}

/// The purpose of the fence: no overtaken client gets in, and no write is lost.
pub(super) fn resource(name: &str, events: &[&Event], found: &mut Vec<Violation>) {
    let mut greatest: Option<(u64, &Event)> = None;
    let mut last: Option<(u64, &Event)> = None;
    for event in events {
        let (token, over, value) = match &event.what {
            What::Reads { token, value, .. } => (*token, None, *value),
            What::Writes { token, over, value, .. } => (*token, Some(*over), *value),
            _ => continue,
        };
        let Event { at, client, .. } = event;
        let mut broken = |broken, earlier: &Event, what| {
            let clients = [earlier.client.as_str(), client.as_str()];
            found.push(Violation::new(broken, name, &clients, earlier.at, (*at, *at), what));
        };
        match greatest {
            Some((seen, earlier)) if token < seen => {
                let what = format!(
                    "the resource of {name:?} let {client} in with token {token}, although {} had been there with token \
                     {seen}",
                    earlier.client
                );
                broken(Broken::StaleAccess, earlier, what);
            }
            _ => greatest = Some((token, event)),
        }
        if let (Some(over), Some((there, earlier))) = (over, last)
            && over != there
        {
            let what = format!(
                "{client} wrote {value} over {over}, but {} had left {there} at the resource of {name:?}: that write is \
                 lost",
                earlier.client
            );
            broken(Broken::LostUpdate, earlier, what);
        }
        // A reading tells where a history begins, and nothing new later.
        if over.is_some() || last.is_none() {
            last = Some((value, event));
        }
    }
}

/// Clause W2: a bounded wait ends in time; and every wait ends when the locks are closed, or when all is over.
pub(super) fn waits(account: &Account<'_>, allowance: Duration, found: &mut Vec<Violation>) {
    for ask in &account.asks {
        let closing = account.closing_of(ask.client, ask.at).map(|closing| closing.begun);
        let Some(due) = [ask.by, closing, account.over].into_iter().flatten().min() else { continue };
        let limit = account.at_the_latest(ask.client, due, allowance);
        // All had their time.
        let limit = account.over.filter(|_| ask.ended.is_none()).map_or(limit, |over| limit.min(over));
        let ended = ask.ended.unwrap_or(account.end);
        if ended < limit || (ended == limit && ask.ended.is_some()) {
            continue;
        }
        let outcome = if ask.ended.is_some() { "ended" } else { "had not ended" };
        let (Ask { call, client, name, .. }, late) = (ask, Span(ended.since(due)));
        let what = format!("acquisition {call} of {client} for {name:?} {outcome} {late} after it had to");
        found.push(Violation::new(Broken::WaiterHung, name, &[ask.client], ask.at, (due, ended), what));
    }
}

/// Clause U3: `close` returns.
pub(super) fn closings(account: &Account<'_>, found: &mut Vec<Violation>) {
    let Some(over) = account.over else { return };
    for Closing { client, begun, .. } in account.closings.iter().filter(|closing| closing.done.is_none()) {
        let late = Span(over.since(*begun));
        let what = format!("{client} began to close its locks, and {late} later it had not done so");
        found.push(Violation::new(Broken::CloseHung, "", &[*client], *begun, (*begun, over), what));
    }
}

/// A latch counts each party once, and forgets none.
pub(super) fn latches(account: &Account<'_>, found: &mut Vec<Violation>) {
    for Event { at, client, what } in &account.looks {
        let What::Looked { name, since, of, begun, sure, missing } = what else { continue };
        let loses = account.spells_in(*since, *at).any(|spell| spell.loses(name));
        let most = if loses { *of } else { of.saturating_sub(*sure) };
        if (of.saturating_sub(*begun)..=most).contains(missing) {
            continue;
        }
        let what = format!(
            "{client} was told that {missing} of {of} parties are missing at the latch {name:?}; {begun} had begun to \
             count down, and {sure} had been told that they are counted"
        );
        let (clients, span) = ([client.as_str()], (*at, *at));
        found.push(Violation::new(Broken::LatchMiscounted, name, &clients, *since, span, what));
    }
}

/// Clause F1: when all is over, nothing is held.
pub(super) fn leaks(account: &Account<'_>, found: &mut Vec<Violation>) {
    for (at, name, holders) in &account.leaks {
        let last = account.holds.get(name).and_then(|holds| holds.last());
        let clients: Vec<_> = last.map(|hold| hold.client).into_iter().collect();
        let (from, since) = last.map_or((*at, *at), |hold| (hold.ends().min(*at), hold.granted));
        let what = format!(
            "every client has ended, and {name:?} cannot be had; the store says of its holders: {holders}"
        );
        found.push(Violation::new(Broken::Leaked, name, &clients, since, (from, *at), what));
    }
}
