//! A history: the events of all clients, and what records them.

use super::{Event, Stamp, What};
use std::{
    fmt,
    io::{self, BufRead, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// The notes of all clients, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<Event>);

impl History {
    /// The notes, in the order of time.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.0
    }

    /// Writes one JSON object a line.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        for event in &self.0 {
            serde_json::to_writer(&mut out, event)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Reads what [`write`](Self::write) wrote. Files of several processes may follow one another.
    ///
    /// # Errors
    ///
    /// The errors of `input`, and a line that is no note, with its number.
    pub fn read(input: impl BufRead) -> Result<Self, ReadError> {
        let event = |(index, line): (usize, io::Result<String>)| {
            serde_json::from_str(&line?).map_err(|error| ReadError::Line { line: index + 1, error })
        };
        input.lines().enumerate().map(event).collect::<Result<Vec<_>, _>>().map(Self::from)
    }
}

impl From<Vec<Event>> for History {
    fn from(mut events: Vec<Event>) -> Self {
        // Stable: notes of one instant stay in the order in which they were taken.
        events.sort_by_key(|event| event.at);
        Self(events)
    }
}

/// Why a history could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The input failed.
    #[error("the history could not be read")]
    Input(#[from] io::Error),
    /// A line is not an event.
    #[error("line {line} is not an event of a history")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// The fault in it.
        #[source]
        error: serde_json::Error,
    },
}

/// Takes notes for any number of clients. Cloning gives the same recorder.
///
/// # Examples
///
/// ```
/// use tenure_conformance::judge::{Recorder, What};
///
/// let (recorder, notes) = Recorder::new();
/// recorder.note("c1", What::Closes);
/// assert_eq!(notes.take().events().len(), 1);
/// ```
#[derive(Clone)]
pub struct Recorder(Arc<dyn Fn(Event) + Send + Sync>);

/// The notes that a [`Recorder`] took.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    /// A recorder that keeps its notes in memory.
    #[must_use]
    pub fn new() -> (Self, Notes) {
        let notes = Notes::default();
        let kept = notes.clone();
        (Self::to(move |event| kept.add(event)), notes)
    }

    /// A recorder that hands each note on, for instance to another process.
    pub fn to(hand_on: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hand_on))
    }

    /// Notes this, now.
    pub fn note(&self, client: &str, what: What) {
        self.add(Event { at: Stamp::now(), client: client.to_owned(), what });
    }

    /// Takes a note of another recorder.
    pub fn add(&self, event: Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Notes {
    fn add(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// The notes so far; none are left.
    #[must_use]
    pub fn take(&self) -> History {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }
}
