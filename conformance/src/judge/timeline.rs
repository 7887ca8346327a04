//! A part of a history, arranged to be drawn.

use super::{
    Broken, Effect, Event, History, Stamp, Violation, What, about::About, account::Account, stamp::Relative,
};
use std::time::Duration;

/// The events around a [`Violation`]: one track a client, holds and waits as bars, faults and notes as marks.
///
/// Its `Display` draws it with characters. Times are relative to where the contract begins to be broken.
#[derive(Clone, Debug)]
pub struct Timeline {
    pub(super) title: String,
    pub(super) what: String,
    pub(super) from: Stamp,
    pub(super) to: Stamp,
    pub(super) broken: (Stamp, Stamp),
    pub(super) tracks: Vec<Track>,
    pub(super) faults: Vec<Fault>,
    /// When, whose, and in which words.
    pub(super) notes: Vec<(Stamp, String, String)>,
    /// How many notes there are beyond those.
    pub(super) more: usize,
}

/// One client.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) client: String,
    /// The waits and holds: from when to when, and whether it is a hold.
    pub(super) bars: Vec<(Stamp, Stamp, bool)>,
    /// Events without a duration: the time of each, and its letter in [`SIGNS`].
    pub(super) marks: Vec<(Stamp, char)>,
}

/// A fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) letter: char,
    pub(super) whom: String,
    pub(super) kind: String,
    pub(super) from: Stamp,
    pub(super) to: Stamp,
}

/// The marks, and their meaning. The later one is drawn over the earlier.
const SIGNS: [(char, &str); 8] = [
    ('r', "reads"),
    ('w', "writes"),
    ('x', "is refused by the resource"),
    ('g', "ends its wait without the lock"),
    ('R', "releases"),
    ('C', "closed its locks"),
    ('L', "notices the loss"),
    ('D', "is killed"),
];

/// The mark of an event.
fn sign(what: &What) -> Option<char> {
    Some(match what {
        What::Reads { .. } => 'r',
        What::Writes { .. } => 'w',
        What::Refused { .. } => 'x',
        What::Ended { .. } => 'g',
        What::Releases { .. } => 'R',
        What::Closed => 'C',
        What::Lost { .. } => 'L',
        What::Fault { effect: Effect::Kills, .. } => 'D',
        _ => return None,
    })
}

/// How many columns the time has.
pub(super) const WIDTH: usize = 72;
/// How many tracks a person can follow.
const TRACKS: usize = 10;
/// How many notes a person reads.
const NOTES: usize = 30;

impl Violation {
    /// The events around it, for people.
    #[must_use]
    pub fn timeline(&self, history: &History) -> Timeline {
        Timeline::of(history, self)
    }
}

impl Timeline {
    fn of(history: &History, violation: &Violation) -> Self {
        let account = Account::of(history);
        let span = violation.to.since(violation.since).max(Duration::from_micros(10));
        let (from, to) = (violation.since - span / 4, violation.to + span / 8);
        let mut timeline = Self {
            title: violation.to_string(),
            what: violation.what.clone(),
            from,
            to,
            broken: (violation.from, violation.to),
            tracks: violation.clients.iter().map(|client| Track::new(client)).collect(),
            faults: Vec::new(),
            notes: Vec::new(),
            more: 0,
        };
        timeline.tracks.dedup_by(|one, other| one.client == other.client);
        timeline.draw_bars(&account, violation);
        timeline.draw_faults(&account);
        timeline.take_notes(history, violation);
        for track in &mut timeline.tracks {
            track.marks.sort_by_key(|(_, mark)| SIGNS.iter().position(|(sign, _)| sign == mark));
        }
        timeline
    }

    /// Whether something from `.0` to `.1` is to be seen.
    fn sight(&self) -> impl Fn(Stamp, Stamp) -> bool + use<> {
        let (begin, end) = (self.from, self.to);
        move |from, to| from <= end && to >= begin
    }

    fn track(&mut self, client: &str) -> Option<&mut Track> {
        if self.tracks.len() < TRACKS && self.tracks.iter().all(|track| track.client != client) {
            self.tracks.push(Track::new(client));
        }
        self.tracks.iter_mut().find(|track| track.client == client)
    }

    fn draw_bars(&mut self, account: &Account<'_>, violation: &Violation) {
        let shows = self.sight();
        let holds = account.holds.get(violation.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        for hold in holds.iter().filter(|hold| shows(hold.granted, hold.ends())) {
            if let Some(track) = self.track(hold.client) {
                track.bars.push((hold.granted, hold.ends(), true));
            }
        }
        for ask in account.asks.iter().filter(|ask| ask.name == violation.name) {
            let ended = ask.ended.unwrap_or(account.end);
            if shows(ask.at, ended)
                && let Some(track) = self.track(ask.client)
            {
                track.bars.insert(0, (ask.at, ended, false));
            }
        }
    }

    fn draw_faults(&mut self, account: &Account<'_>) {
        let shows = self.sight();
        let letters = ('A'..='Z').chain('a'..='z');
        let shown = account.spells.iter().filter(|spell| {
            let concerns = |track: &Track| Event::means(spell.whom, &track.client);
            shows(spell.from, spell.to) && self.tracks.iter().any(concerns)
        });
        self.faults = shown
            .zip(letters)
            .map(|(spell, letter)| Fault {
                letter,
                whom: spell.whom.to_owned(),
                kind: spell.kind.to_owned(),
                from: spell.from,
                to: spell.to,
            })
            .collect();
    }

    fn take_notes(&mut self, history: &History, violation: &Violation) {
        let at_the_resource = matches!(violation.broken, Broken::StaleAccess | Broken::LostUpdate);
        let (shows, about) = (self.sight(), About::of(history, &violation.name));
        for event in history.events().iter().filter(|event| shows(event.at, event.at)) {
            let is_its = |track: &&mut Track| Event::means(&event.client, &track.client);
            let tracks: Vec<_> = self.tracks.iter_mut().filter(is_its).collect();
            if tracks.is_empty() || !about.concerns(event) {
                continue;
            }
            if let Some(sign) = sign(&event.what) {
                for track in tracks {
                    track.marks.push((event.at, sign));
                }
            }
            let party = violation.clients.iter().any(|client| Event::means(&event.client, client));
            if !party && matches!(event.what, What::Closes | What::Closed | What::Ended { .. }) {
                // The tracks show that others leave.
                continue;
            }
            let Some(text) = About::words(event, at_the_resource) else { continue };
            if self.notes.len() < NOTES {
                self.notes.push((event.at, event.client.clone(), text));
            } else {
                self.more += 1;
            }
        }
    }

    /// The column of this instant.
    pub(super) fn place(&self, at: Stamp) -> usize {
        let span = self.to.since(self.from).as_nanos().max(1);
        let into = at.min(self.to).since(self.from).as_nanos();
        usize::try_from(into * WIDTH as u128 / span).unwrap_or(WIDTH)
    }

    pub(super) fn relative(&self, at: Stamp) -> Relative {
        Relative { at, zero: self.broken.0 }
    }

    /// The signs that are there, to be explained.
    pub(super) fn signs(&self) -> impl Iterator<Item = (char, &'static str)> {
        let marks = |track: &Track, sign| track.marks.iter().any(|(_, mark)| *mark == sign);
        SIGNS.into_iter().filter(move |(sign, _)| self.tracks.iter().any(|track| marks(track, *sign)))
    }
}

impl Track {
    fn new(client: &str) -> Self {
        Self { client: client.to_owned(), bars: Vec::new(), marks: Vec::new() }
    }
}
