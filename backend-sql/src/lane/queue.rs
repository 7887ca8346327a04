//! The jobs that wait for a connection.

use super::{
    request::{Job, reply},
    server::Server,
};
use std::{collections::VecDeque, mem, sync::Arc};
use tenure_core::StoreError;
use tokio::sync::mpsc;

/// The jobs of a connection's task, in the order in which they were sent.
pub(super) struct Queue<S: Server> {
    /// Those that the task has looked at.
    pub(super) waiting: VecDeque<Job<S>>,
    sent: mpsc::UnboundedReceiver<Job<S>>,
}

impl<S: Server> Queue<S> {
    pub(super) fn new(sent: mpsc::UnboundedReceiver<Job<S>>) -> Self {
        Self { waiting: VecDeque::new(), sent }
    }

    /// The next job, once all that were sent meanwhile are in the queue.
    pub(super) async fn next(&mut self) -> Option<Job<S>> {
        if self.waiting.is_empty() {
            self.waiting.push_back(self.sent.recv().await?);
        }
        self.gather();
        self.waiting.pop_front()
    }

    fn gather(&mut self) {
        while let Ok(job) = self.sent.try_recv() {
            self.waiting.push_back(job);
        }
    }

    /// If there is no connection because the server could not be reached, all that wait for one by now get this error:
    /// otherwise each would make its own attempt to connect, and the last would wait for the attempts of all the
    /// others. No caller has been told of the error before this, so a request that is sent because of it comes later,
    /// and makes its own attempt. Returns the error for the job that made this attempt.
    pub(super) fn refuse(&mut self, error: StoreError) -> StoreError {
        if !error.is_unavailable() {
            return error;
        }
        self.gather();
        let error = Arc::new(error);
        let same = || StoreError::unavailable(Arc::clone(&error));
        for job in mem::take(&mut self.waiting) {
            match job {
                // The caller may have given up.
                Job::Open(opened) => drop(opened.send(Err(same()))),
                Job::Ask(request) => reply(request.doing, request.answer, Err(same())),
                close @ Job::Close(_) => self.waiting.push_back(close),
            }
        }
        same()
    }
}
