//! The task of a connection.

use super::{
    queue::Queue,
    request::{Answered, Job, Request, reply, silent},
    server::{Again, Server, Verdict},
    together::{objects, others, put_back, refuse, tell},
};
use crate::silence;
use std::{sync::Arc, time::Duration};
use tenure_core::{Moment, StoreError};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};

/// How long closing a connection may take.
pub(super) const GOODBYE: Duration = Duration::from_millis(500);
/// The longest pause before a statement that collided with another is sent again.
const COLLISION_PAUSE: Duration = Duration::from_millis(5);
/// A request has this part of the response timeout, also if others hurry: the server may be far away.
const ITS_TIME: u32 = 5;

/// A connection's task.
pub(super) struct Worker<S: Server> {
    server: Arc<S>,
    hurry: Arc<Notify>,
    open: Option<S::Connection>,
    /// When the last request ended.
    used: Moment,
}

impl<S: Server> Worker<S> {
    pub(super) fn new(server: Arc<S>, hurry: Arc<Notify>) -> Self {
        Self { server, hurry, open: None, used: Moment::now() }
    }

    /// Carries out one job after the other, until no sender is left.
    pub(super) async fn work(mut self, jobs: mpsc::UnboundedReceiver<Job<S>>) {
        let mut queue = Queue::new(jobs);
        while let Some(job) = self.next(&mut queue).await {
            match job {
                Job::Open(opened) => {
                    let outcome = self.connection().await.map(drop).map_err(|error| queue.refuse(error));
                    if let Err(error) = &outcome {
                        tracing::debug!(%error, "could not open a connection in advance");
                    }
                    // The caller may have given up.
                    let _ = opened.send(outcome);
                }
                Job::Ask(request) => {
                    self.check_idle().await;
                    self.answer_with_others(request, &mut queue).await;
                }
                Job::Close(done) => {
                    self.close().await;
                    // The caller may have given up.
                    let _ = done.send(());
                }
            }
            self.used = Moment::now();
        }
        self.close().await;
    }

    /// The next job. Meanwhile, closes a connection that leads elsewhere.
    async fn next(&mut self, queue: &mut Queue<S>) -> Option<Job<S>> {
        if let Some(open) = &self.open {
            tokio::select! {
                biased;
                job = queue.next() => return job,
                () = self.server.elsewhere(open) => {}
            }
            self.close().await;
        }
        queue.next().await
    }

    async fn close(&mut self) {
        if let Some(connection) = self.open.take() {
            let goodbye = tokio::time::timeout(GOODBYE, self.server.close(connection));
            if let Ok(Err(error)) = goodbye.await {
                tracing::debug!(%error, "could not close a connection cleanly");
            }
        }
    }

    async fn connection(&mut self) -> Result<&mut S::Connection, StoreError> {
        if self.open.as_ref().is_some_and(|open| self.server.is_elsewhere(open)) {
            self.close().await;
        }
        Ok(match &mut self.open {
            Some(connection) => connection,
            none => none.insert(self.server.open().await?),
        })
    }

    /// Drops the connection if it was idle for long and gives no sign of life.
    async fn check_idle(&mut self) {
        let Some(connection) = &mut self.open else { return };
        let ping = self.server.ping(connection);
        if !silence::is_alive(self.used, self.server.response_timeout(), ping).await {
            self.open = None;
        }
    }

    /// Carries out a request, and with it those in the queue that can be carried out together with it.
    async fn answer_with_others(&mut self, first: Request<S>, queue: &mut Queue<S>) {
        // Its caller has given up. Don't let a later request take its slot.
        if first.answer.is_closed() {
            return;
        }
        let mut requests = match &first.member {
            // Without a connection there may be no server, and each would have to be told so.
            Some(member) if self.open.is_some() && !first.alone => others(member, &mut queue.waiting),
            _ => Vec::new(),
        };
        requests.insert(0, first);
        requests.retain(|request| !request.answer.is_closed());
        if requests.len() > 1 {
            put_back(self.answer_together(requests).await, &mut queue.waiting);
        } else if let Some(request) = requests.pop() {
            self.answer(request, queue).await;
        }
    }

    /// Carries out requests of one kind together. Returns those that were left out.
    async fn answer_together(&mut self, requests: Vec<Request<S>>) -> Vec<Request<S>> {
        let many = requests.first().and_then(|first| first.member.as_ref()).map(|first| first.many.clone());
        let (Some(many), Some(connection)) = (many, &mut self.open) else { return requests };
        let (longest, begun) = (self.server.response_timeout(), Instant::now());
        let running = self.server.run_together(connection, &many, objects(&requests));
        let error = match tokio::time::timeout(longest, running).await {
            Ok(Ok(answers)) => return tell(answers, requests),
            Ok(Err(error)) => error,
            Err(_) => {
                self.open = None;
                refuse(requests, || silent(longest));
                return Vec::new();
            }
        };
        match self.server.verdict(&error) {
            // Undone as a whole: each is asked for by itself, and told its own error.
            Verdict::Collided | Verdict::Refused if begun.elapsed() < longest / 2 => requests,
            // It waits for no row, so the same delay would meet each of them: the table is locked.
            Verdict::Collided | Verdict::Refused => {
                let why = self.server.explain(error).to_string();
                refuse(requests, || StoreError::unavailable(why.clone()));
                Vec::new()
            }
            #[cfg(feature = "sqlite")]
            Verdict::Spoilt => {
                self.open = None;
                requests
            }
            Verdict::Broken => {
                self.open = None;
                let (again, lost): (Vec<_>, Vec<_>) =
                    requests.into_iter().partition(|request| request.again == Again::Safe);
                let is_over = is_over(&error);
                let why = self.server.explain(error).to_string();
                refuse(lost, || StoreError::unavailable(why.clone()));
                let resent = |request: Request<S>| Request { resent: request.resent || !is_over, ..request };
                again.into_iter().map(resent).collect()
            }
        }
    }

    /// Carries out a request by a statement of its own.
    async fn answer(&mut self, request: Request<S>, queue: &mut Queue<S>) {
        let Request { statement, arguments, again, mut resent, mut answer, doing, .. } = request;
        let (server, hurry) = (Arc::clone(&self.server), Arc::clone(&self.hurry));
        let longest = server.response_timeout();
        let mut give_up = None;
        // The caller may be gone, while the request was queued or the connection was opened.
        while !answer.is_closed() {
            let used = self.open.is_some();
            let connection = match self.connection().await {
                Ok(connection) => connection,
                Err(error) => return reply(doing, answer, Err(queue.refuse(error))),
            };
            if answer.is_closed() {
                return;
            }
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + longest);
            let its_time = Instant::now() + longest / ITS_TIME;
            let running = server.run(connection, &statement, arguments.clone());
            let outcome = if S::ENDS_BY_ITSELF {
                running.await
            } else {
                tokio::select! {
                    biased;
                    outcome = running => outcome,
                    () = tokio::time::sleep_until(give_up) => {
                        self.open = None;
                        return reply(doing, answer, Err(silent(longest)));
                    }
                    () = given_up(&mut answer, its_time, &hurry) => {
                        self.open = None;
                        return;
                    }
                }
            };
            let error = match outcome {
                Ok(told) => return reply(doing, answer, Ok(Answered { answer: told, resent })),
                Err(error) => error,
            };
            match server.verdict(&error) {
                Verdict::Collided if Instant::now() < give_up => {
                    tracing::debug!(%error, "a statement collided with another; sending it again");
                    tokio::time::sleep(COLLISION_PAUSE.mul_f64(fastrand::f64())).await;
                }
                // The first copy may still be carried out.
                Verdict::Collided | Verdict::Refused if resent => {
                    return reply(doing, answer, Err(StoreError::unavailable(server.explain(error))));
                }
                Verdict::Collided | Verdict::Refused => {
                    return reply(doing, answer, Err(server.explain(error)));
                }
                #[cfg(feature = "sqlite")]
                Verdict::Spoilt => {
                    self.open = None;
                    return reply(doing, answer, Err(server.explain(error)));
                }
                Verdict::Broken => {
                    self.open = None;
                    // The server may have ended the connection long ago, while it was idle.
                    if !used || again == Again::No {
                        return reply(doing, answer, Err(server.explain(error)));
                    }
                    resent |= !is_over(&error);
                }
            }
        }
    }
}

/// Whether the request has ended: a request that a server answers has, unless the answer is a pooler's error for a
/// server that is gone (class 08).
fn is_over(error: &sqlx::Error) -> bool {
    let said = error.as_database_error();
    said.is_some_and(|said| said.code().is_none_or(|code| !code.starts_with("08")))
}

/// Completes when the caller is gone, the request has had its time, and the next one is in a hurry.
async fn given_up<A>(answer: &mut oneshot::Sender<A>, its_time: Instant, hurry: &Notify) {
    answer.closed().await;
    tokio::time::sleep_until(its_time).await;
    hurry.notified().await;
}
