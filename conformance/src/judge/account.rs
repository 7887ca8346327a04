//! A history, put together: requests, holders, and faults.

use super::{Effect, Event, History, Outcome, Stamp, What};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};
use tenure_core::Mode;

/// The notes of a history, put together.
///
/// A note about an acquisition or a claim that the history does not know is left aside: of a client that was killed,
/// the last notes may be missing.
#[derive(Debug, Default)]
pub(super) struct Account<'a> {
    pub(super) asks: Vec<Ask<'a>>,
    /// By name, in the order in which they were granted.
    pub(super) holds: BTreeMap<&'a str, Vec<Hold<'a>>>,
    /// The events at each resource.
    pub(super) resources: BTreeMap<&'a str, Vec<&'a Event>>,
    pub(super) spells: Vec<Spell<'a>>,
    pub(super) closings: Vec<Closing<'a>>,
    /// The looks of clients at latches of their own.
    pub(super) looks: Vec<&'a Event>,
    /// Which locks could not be had when all was over: when that was seen, and what the store said of the holders.
    pub(super) leaks: Vec<(Stamp, &'a str, &'a str)>,
    /// The last note.
    pub(super) end: Stamp,
    /// Whether all had their time to end.
    pub(super) over: Option<Stamp>,
}

/// An acquisition.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) client: &'a str,
    pub(super) call: u64,
    pub(super) name: &'a str,
    pub(super) at: Stamp,
    pub(super) by: Option<Stamp>,
    pub(super) ended: Option<Stamp>,
}

/// A grant, from the holder's side. Where it is handed on, each of the chain is a hold of its own.
#[derive(Debug, Default)]
pub(super) struct Hold<'a> {
    pub(super) client: &'a str,
    pub(super) claim: &'a str,
    /// The place of the hold before it in its chain.
    pub(super) follows: Option<usize>,
    pub(super) origin: Origin,
    pub(super) token: u64,
    pub(super) lease: Duration,
    pub(super) label: &'a str,
    /// Since when it was held in which mode. The first is the grant.
    pub(super) modes: Vec<(Stamp, Mode)>,
    /// When its acquisition began, if that is known.
    pub(super) asked: Option<Stamp>,
    pub(super) granted: Stamp,
    /// Each time the guard was asked: when, and until when it believed in itself. The first is the grant.
    pub(super) words: Vec<(Stamp, Stamp)>,
    pub(super) releases: Option<Stamp>,
    /// When the release was told that the grant was held until then.
    pub(super) released: Option<Stamp>,
    pub(super) lost: Option<Stamp>,
    /// When it heard that it had lost the grant, and why, from the guard or from the release.
    pub(super) told: Option<(Stamp, &'a str)>,
    pub(super) died: Option<Stamp>,
}

/// The first hold of a chain: the store knows of no other. Most have no successor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    /// When its acquisition began, if that is known.
    pub(super) asked: Option<Stamp>,
    pub(super) granted: Stamp,
    pub(super) token: u64,
}

impl Origin {
    /// The earliest time at which the store can have granted the claim, as far as the notes tell.
    pub(super) fn begun(&self) -> Stamp {
        self.asked.unwrap_or(self.granted)
    }
}

impl Hold<'_> {
    /// The deadline of which the guard last spoke.
    pub(super) fn until(&self) -> Stamp {
        self.words.last().map_or(self.granted, |(_, until)| *until)
    }

    /// When the belief ends (clause L3): at the release, the loss or the deadline, whichever is first. The dead believe
    /// nothing.
    pub(super) fn ends(&self) -> Stamp {
        [self.releases, self.lost, self.died].into_iter().flatten().fold(self.until(), Stamp::min)
    }

    /// The mode in which it was granted.
    pub(super) fn mode(&self) -> Mode {
        self.modes.first().map_or(Mode::Exclusive, |(_, mode)| *mode)
    }

    /// In which mode it was held at that time.
    pub(super) fn mode_at(&self, at: Stamp) -> Mode {
        let until = self.modes.iter().rev().find(|(since, _)| *since <= at);
        until.map_or_else(|| self.mode(), |(_, mode)| *mode)
    }

    /// In which mode it was held from when to when.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (Mode, Stamp, Stamp)> + '_ {
        let ends = self.ends();
        let next = self.modes.iter().skip(1).map(move |(at, _)| ends.min(*at)).chain([ends]);
        self.modes.iter().zip(next).map(|((from, mode), to)| (*mode, *from, to))
    }

    /// When the client noticed that the belief was over, or gave it up.
    pub(super) fn noticed(&self) -> Option<Stamp> {
        [self.releases, self.lost].into_iter().flatten().min()
    }

    /// The last time before `at` that the guard was asked.
    pub(super) fn word_before(&self, at: Stamp) -> Stamp {
        let before = self.words.iter().rev().map(|(when, _)| *when).find(|when| *when <= at);
        before.unwrap_or(self.granted)
    }
}

/// A fault, from its beginning to its end.
#[derive(Debug)]
pub(super) struct Spell<'a> {
    pub(super) whom: &'a str,
    pub(super) kind: &'a str,
    pub(super) effect: &'a Effect,
    pub(super) from: Stamp,
    /// The last note, if it has no end.
    pub(super) to: Stamp,
    fault: u64,
    /// Whether a replica took its master's place meanwhile.
    pub(super) failed_over: bool,
}

impl Spell<'_> {
    pub(super) fn forgets(&self, about: &str) -> bool {
        *self.effect == Effect::EndsLeases || self.loses(about)
    }

    /// Whether the store may have lost its data about this name.
    pub(super) fn loses(&self, about: &str) -> bool {
        self.failed_over
            || matches!(self.effect, Effect::Forgets { name } if name.as_deref().is_none_or(|name| name == about))
    }
}

/// The end of a client's locks.
#[derive(Debug)]
pub(super) struct Closing<'a> {
    pub(super) client: &'a str,
    pub(super) begun: Stamp,
    pub(super) done: Option<Stamp>,
}

impl<'a> Account<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut account = Self::default();
        let mut index = Index::default();
        for event in history.events() {
            account.take(event, &mut index);
        }
        for spell in &mut account.spells {
            spell.to = spell.to.min(account.end);
        }
        account.bury();
        account
    }

    fn take(&mut self, event: &'a Event, index: &mut Index<'a>) {
        let (at, client) = (event.at, event.client.as_str());
        self.end = at;
        match &event.what {
            What::Asks { call, name, by } => {
                index.asks.insert((client, *call), self.asks.len());
                self.asks.push(Ask { client, call: *call, name, at, by: *by, ended: None });
            }
            What::Granted { .. } => self.begin(event, index),
            What::Ended { call, .. } => {
                if let Some(ask) = index.asks.get(&(client, *call)) {
                    self.asks[*ask].ended.get_or_insert(at);
                }
            }
            What::Holds { claim, token, until } => {
                self.about(index, claim, *token, |hold| hold.words.push((at, *until)));
            }
            What::Converted { claim, token, mode } => {
                self.about(index, claim, *token, |hold| hold.modes.push((at, *mode)));
            }
            What::Looked { .. } => self.looks.push(event),
            What::Lost { claim, token, cause } => self.about(index, claim, *token, |hold| {
                hold.lost.get_or_insert(at);
                hold.told.get_or_insert((at, cause));
            }),
            What::Released { claim, token, outcome: Outcome::Lost(cause) } => {
                self.about(index, claim, *token, |hold| {
                    hold.told.get_or_insert((at, cause));
                });
            }
            What::Releases { claim, token } => self.about(index, claim, *token, |hold| {
                hold.releases.get_or_insert(at);
            }),
            What::Released { claim, token, outcome: Outcome::Released } => {
                self.about(index, claim, *token, |hold| hold.released = Some(at));
            }
            What::Elsewhere { .. } | What::RuntimeEnded | What::Released { .. } => {}
            What::Reads { name, .. } | What::Writes { name, .. } | What::Refused { name, .. } => {
                self.resources.entry(name).or_default().push(event);
            }
            What::Closes => self.closings.push(Closing { client, begun: at, done: None }),
            What::Closed => {
                let closing = self.closings.iter_mut().rev().find(|closing| closing.client == client);
                if let Some(closing) = closing {
                    closing.done.get_or_insert(at);
                }
            }
            What::Fault { fault, kind, effect } => {
                let (whom, fault, from, to, failed_over) = (client, *fault, at, Stamp::NEVER, false);
                self.spells.push(Spell { whom, kind, effect, from, to, fault, failed_over });
            }
            What::FailedOver { fault } => self.spell(*fault, |spell| spell.failed_over = true),
            What::Healed { fault } => self.spell(*fault, |spell| spell.to = at),
            What::Leaked { name, holders } => self.leaks.push((at, name, holders)),
            What::Over => self.over = Some(at),
        }
    }

    /// A hold begins: with a grant of the store, or as the next in a chain.
    fn begin(&mut self, event: &'a Event, index: &mut Index<'a>) {
        let (at, client) = (event.at, event.client.as_str());
        let What::Granted { call, name, claim, mode, token, until, lease, label } = &event.what else {
            return;
        };
        let (name, claim, token, lease) = (name.as_str(), claim.as_str(), *token, *lease);
        let asked = index.asks.get(&(client, *call)).map(|place| {
            let ask = &mut self.asks[*place];
            ask.ended.get_or_insert(at);
            ask.at
        });
        let holds = self.holds.entry(name).or_default();
        let place = (name, holds.len());
        let follows = index.last.insert(claim, place).filter(|(of, _)| *of == name).map(|(_, last)| last);
        index.holds.insert((claim, token), place);
        let origin = follows.map_or(Origin { asked, granted: at, token }, |last| holds[last].origin);
        holds.push(Hold {
            client,
            claim,
            follows,
            origin,
            token,
            lease,
            label,
            modes: vec![(at, *mode)],
            asked,
            granted: at,
            words: vec![(at, *until)],
            ..Hold::default()
        });
    }

    /// Changes the fault, which is not over yet.
    fn spell(&mut self, fault: u64, change: impl FnOnce(&mut Spell<'a>)) {
        let is_it = |spell: &&mut Spell<'_>| spell.fault == fault && spell.to == Stamp::NEVER;
        self.spells.iter_mut().rev().find(is_it).map(change);
    }

    fn about(&mut self, index: &Index<'a>, claim: &'a str, token: u64, change: impl FnOnce(&mut Hold<'a>)) {
        let hold = index
            .holds
            .get(&(claim, token))
            .and_then(|(name, place)| self.holds.get_mut(name)?.get_mut(*place));
        if let Some(hold) = hold {
            change(hold);
        }
    }

    /// Ends the holds and waits of dead clients.
    fn bury(&mut self) {
        for spell in self.spells.iter().filter(|spell| *spell.effect == Effect::Kills) {
            // Until the process is gone for certain it may still have taken notes.
            let gone = spell.to;
            let died = |client, since| Event::means(spell.whom, client) && since <= gone;
            for ask in self.asks.iter_mut().filter(|ask| died(ask.client, ask.at)) {
                ask.ended.get_or_insert(spell.from.max(ask.at));
            }
            let holds = self.holds.values_mut().flatten();
            for hold in holds.filter(|hold| died(hold.client, hold.granted)) {
                hold.died.get_or_insert(spell.from.max(hold.granted));
            }
            for closing in self.closings.iter_mut().filter(|closing| died(closing.client, closing.begun)) {
                closing.done.get_or_insert(gone);
            }
        }
    }

    /// The latest time at which `client` may notice what it had to notice at `due`: later where it stood still meanwhile.
    pub(super) fn at_the_latest(&self, client: &str, due: Stamp, allowance: Duration) -> Stamp {
        let stops = |spell: &&Spell<'_>| *spell.effect == Effect::Stops && Event::means(spell.whom, client);
        let stopped = |due: Stamp, spell: &Spell<'_>| {
            if spell.from <= due + allowance { due.max(spell.to) } else { due }
        };
        self.spells.iter().filter(stops).fold(due, stopped) + allowance
    }

    /// The faults that were not over before `since`, and had begun by `at`.
    pub(super) fn spells_in(&self, since: Stamp, at: Stamp) -> impl Iterator<Item = &Spell<'a>> {
        self.spells.iter().filter(move |spell| spell.from <= at && since <= spell.to)
    }

    /// Whether the store may have been made to forget this name in such a fault.
    pub(super) fn forgets(&self, name: &str, since: Stamp, at: Stamp) -> bool {
        self.spells_in(since, at).any(|spell| spell.forgets(name))
    }

    /// When `client` began to close its locks, for something of it that began at `since`.
    pub(super) fn closing_of(&self, client: &str, since: Stamp) -> Option<&Closing<'a>> {
        self.closings.iter().find(|closing| Event::means(closing.client, client) && closing.begun >= since)
    }

    /// The last closing of `client` that was over before `at`.
    pub(super) fn closed_before(&self, client: &str, at: Stamp) -> Option<Stamp> {
        let over = |closing: &&Closing<'_>| Event::means(closing.client, client);
        self.closings.iter().filter(over).filter_map(|closing| closing.done).filter(|done| *done < at).max()
    }
}

/// Where notes about an acquisition or a claim belong.
#[derive(Default)]
struct Index<'a> {
    asks: HashMap<(&'a str, u64), usize>,
    /// By claim and token, since the holds of a chain share their claim.
    holds: HashMap<(&'a str, u64), (&'a str, usize)>,
    /// The last hold of each claim.
    last: HashMap<&'a str, (&'a str, usize)>,
}
