//! A part of a history, arranged to be drawn.

use super::{
    Broken, Event, History, Stamp, Violation, What,
    about::About,
    account::{Account, Ask, Hold},
    stamp::Relative,
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
    pub(super) notes: Vec<Note>,
    /// How many notes there are beyond those.
    pub(super) more: usize,
}

/// One client.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) client: String,
    pub(super) bars: Vec<Bar>,
    pub(super) marks: Vec<Mark>,
}

/// A wait, or a hold.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) from: Stamp,
    pub(super) to: Stamp,
    /// A hold's; a wait has none.
    pub(super) token: Option<u64>,
}

/// Something that happened at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) at: Stamp,
    pub(super) sign: Sign,
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

/// A note in words.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) at: Stamp,
    pub(super) client: String,
    pub(super) text: String,
}

/// The meaning of a mark. The later one is drawn over the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sign {
    Reads,
    Writes,
    Refused,
    GivesUp,
    Releases,
    Closed,
    Lost,
    Died,
}

impl Sign {
    pub(super) const ALL: [Self; 8] = [
        Self::Reads,
        Self::Writes,
        Self::Refused,
        Self::GivesUp,
        Self::Releases,
        Self::Closed,
        Self::Lost,
        Self::Died,
    ];

    pub(super) const fn letter(self) -> char {
        match self {
            Self::Reads => 'r',
            Self::Writes => 'w',
            Self::Refused => 'x',
            Self::GivesUp => 'g',
            Self::Releases => 'R',
            Self::Closed => 'C',
            Self::Lost => 'L',
            Self::Died => 'D',
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Refused => "is refused by the resource",
            Self::GivesUp => "ends its wait without the lock",
            Self::Releases => "releases",
            Self::Closed => "closed its locks",
            Self::Lost => "notices the loss",
            Self::Died => "is killed",
        }
    }

    fn of(what: &What) -> Option<Self> {
        Some(match what {
            What::Reads { .. } => Self::Reads,
            What::Writes { .. } => Self::Writes,
            What::Refused { .. } => Self::Refused,
            What::Ended { .. } => Self::GivesUp,
            What::Releases { .. } => Self::Releases,
            What::Closed => Self::Closed,
            What::Lost { .. } => Self::Lost,
            What::Fault { effect: super::Effect::Kills, .. } => Self::Died,
            _ => return None,
        })
    }
}

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
            track.marks.sort_by_key(|mark| mark.sign);
        }
        timeline
    }

    /// Whether something from `.0` to `.1` is to be seen.
    fn sight(&self) -> impl Fn(Stamp, Stamp) -> bool + use<> {
        let (begin, end) = (self.from, self.to);
        move |from, to| from <= end && to >= begin
    }

    fn track(&mut self, client: &str) -> Option<&mut Track> {
        let place = match self.tracks.iter().position(|track| track.client == client) {
            Some(place) => place,
            None if self.tracks.len() < TRACKS => {
                self.tracks.push(Track::new(client));
                self.tracks.len() - 1
            }
            None => return None,
        };
        self.tracks.get_mut(place)
    }

    fn draw_bars(&mut self, account: &Account<'_>, violation: &Violation) {
        let shows = self.sight();
        let holds = account.holds.get(violation.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        for hold in holds.iter().filter(|hold| shows(hold.granted, hold.ends())) {
            let bar = Bar::of_hold(hold);
            if let Some(track) = self.track(hold.client) {
                track.bars.push(bar);
            }
        }
        for ask in account.asks.iter().filter(|ask| ask.name == violation.name) {
            let bar = Bar::of_ask(ask, account.end);
            if !shows(bar.from, bar.to) {
                continue;
            }
            if let Some(track) = self.track(ask.client) {
                track.bars.insert(0, bar);
            }
        }
    }

    fn draw_faults(&mut self, account: &Account<'_>) {
        let shows = self.sight();
        let letters = ('A'..='Z').chain('a'..='z');
        let spells = account.spells.iter().map(|spell| (spell, spell.to.unwrap_or(account.end)));
        let shown = spells.filter(|(spell, to)| {
            let concerns = |track: &Track| Event::means(spell.whom, &track.client);
            shows(spell.from, *to) && self.tracks.iter().any(concerns)
        });
        self.faults = shown
            .zip(letters)
            .map(|((spell, to), letter)| Fault {
                letter,
                whom: spell.whom.to_owned(),
                kind: spell.kind.to_owned(),
                from: spell.from,
                to,
            })
            .collect();
    }

    fn take_notes(&mut self, history: &History, violation: &Violation) {
        let at_the_resource = matches!(violation.broken, Broken::StaleAccess | Broken::LostUpdate);
        let (shows, about) = (self.sight(), About::of(history, &violation.name));
        for event in history.events().iter().filter(|event| shows(event.at, event.at)) {
            let tracks: Vec<String> = self
                .tracks
                .iter()
                .map(|track| track.client.clone())
                .filter(|track| Event::means(&event.client, track))
                .collect();
            if tracks.is_empty() || !about.concerns(event) {
                continue;
            }
            if let Some(sign) = Sign::of(&event.what) {
                for track in &tracks {
                    if let Some(track) = self.track(track) {
                        track.marks.push(Mark { at: event.at, sign });
                    }
                }
            }
            let party = violation.clients.iter().any(|client| Event::means(&event.client, client));
            if !party && matches!(event.what, What::Closes | What::Closed | What::Ended { .. }) {
                // The tracks show that others leave.
                continue;
            }
            let Some(text) = About::words(event, at_the_resource) else { continue };
            if self.notes.len() < NOTES {
                self.notes.push(Note { at: event.at, client: event.client.clone(), text });
            } else {
                self.more += 1;
            }
        }
    }

    /// Where in a width of `width` this instant is.
    pub(super) fn place(&self, at: Stamp, width: usize) -> usize {
        let span = self.to.since(self.from).as_nanos().max(1);
        let into = at.min(self.to).since(self.from).as_nanos();
        usize::try_from(into * width as u128 / span).unwrap_or(width)
    }

    /// The instant at `part` of `parts` of the width.
    pub(super) fn tick(&self, part: u32, parts: u32) -> Relative {
        let at = self.from + self.to.since(self.from) * part / parts;
        Relative { at, zero: self.broken.0 }
    }

    pub(super) fn relative(&self, at: Stamp) -> Relative {
        Relative { at, zero: self.broken.0 }
    }

    /// The signs that are there, to be explained.
    pub(super) fn signs(&self) -> impl Iterator<Item = Sign> {
        let there =
            |sign: &Sign| self.tracks.iter().any(|track| track.marks.iter().any(|mark| mark.sign == *sign));
        Sign::ALL.into_iter().filter(there)
    }
}

impl Track {
    fn new(client: &str) -> Self {
        Self { client: client.to_owned(), bars: Vec::new(), marks: Vec::new() }
    }
}

impl Bar {
    fn of_hold(hold: &Hold<'_>) -> Self {
        Self { from: hold.granted, to: hold.ends(), token: Some(hold.token) }
    }

    fn of_ask(ask: &Ask<'_>, end: Stamp) -> Self {
        Self { from: ask.at, to: ask.ended.unwrap_or(end), token: None }
    }
}
