//! A request on its way to the task of a connection.

use super::server::{Again, Server};
use crate::statement::Statement;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tenure_core::StoreError;
use tokio::sync::oneshot;

/// A job for the task of a connection.
pub(super) enum Job<S: Server> {
    /// Opens the connection in advance, so that the first request need not wait for it, and reports whether it is open.
    Open(oneshot::Sender<Result<(), StoreError>>),
    Ask(Request<S>),
    Close(oneshot::Sender<()>),
}

/// One statement, whose caller waits.
pub(super) struct Request<S: Server> {
    pub(super) statement: Statement,
    pub(super) arguments: S::Arguments,
    pub(super) again: Again,
    /// How it can be carried out with others.
    pub(super) member: Option<Member>,
    /// Where it stood in the queue when a batch took it.
    pub(super) place: usize,
    /// Whether a batch left it out.
    pub(super) alone: bool,
    /// Whether it was in a batch whose answer was lost, so that its first copy may still be carried out.
    pub(super) resent: bool,
    pub(super) answer: oneshot::Sender<Result<Answered<S::Answer>, StoreError>>,
    /// Held until the request is done with.
    pub(super) doing: Operation,
}

/// The answer to a request.
pub(crate) struct Answered<A> {
    pub(crate) answer: A,
    /// Whether the request was sent before, on a connection that turned out to be broken. That first copy may have been
    /// carried out too, or still may be.
    pub(crate) resent: bool,
}

/// A request's place in a batch: requests of one kind, each about another row.
pub(crate) struct Member {
    /// The statement that carries out all of them.
    pub(crate) many: Statement,
    /// The row that the request is about.
    pub(crate) row: String,
    /// Its arguments, as a JSON object.
    pub(crate) object: String,
}

impl Member {
    pub(crate) fn new(many: &Statement, row: &str, object: String) -> Self {
        Self { many: many.clone(), row: row.to_owned(), object }
    }
}

/// The two ends of a request. Together they tell whether the caller gave up before it was done.
pub(super) fn patience(stuck: &Arc<AtomicUsize>) -> (Waiting, Operation) {
    let request = Arc::new((AtomicU8::new(ASKED), Arc::clone(stuck)));
    (Waiting(Arc::clone(&request)), Operation(request))
}

const ASKED: u8 = 0;
const GIVEN_UP: u8 = 1;
const DONE: u8 = 2;

/// The caller's end.
pub(super) struct Waiting(Arc<(AtomicU8, Arc<AtomicUsize>)>);

impl Drop for Waiting {
    fn drop(&mut self) {
        let (state, stuck) = &*self.0;
        stuck.fetch_add(1, Ordering::Relaxed);
        if state.compare_exchange(ASKED, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_err() {
            stuck.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The request's end.
pub(super) struct Operation(Arc<(AtomicU8, Arc<AtomicUsize>)>);

impl Drop for Operation {
    fn drop(&mut self) {
        let (state, stuck) = &*self.0;
        if state.swap(DONE, Ordering::AcqRel) == GIVEN_UP {
            stuck.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Ends the request first: a caller with an answer may ask again at once, and must not find this lane stuck.
pub(super) fn reply<A>(
    doing: Operation,
    answer: oneshot::Sender<Result<A, StoreError>>,
    outcome: Result<A, StoreError>,
) {
    drop(doing);
    // The caller may be gone.
    let _ = answer.send(outcome);
}

pub(super) fn ended() -> StoreError {
    StoreError::unavailable("the connection's task ended with its runtime")
}

pub(super) fn silent(longest: Duration) -> StoreError {
    StoreError::unavailable(format!("no answer within {longest:?}"))
}
