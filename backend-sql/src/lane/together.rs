//! Requests that wait for the connection and are then carried out together.
//!
//! While a request is on its way, the requests behind it gather. No timer is involved, and a lone request is sent at
//! once.

use super::{
    request::{Answered, Job, Member, Request, reply},
    server::Server,
};
use std::collections::{HashMap, HashSet, VecDeque};
use tenure_core::StoreError;

/// How many requests are carried out together, so that none waits long for the others.
const MOST: usize = 100;

/// Takes from the queue the requests that can be carried out together with `first`. No request overtakes another about
/// its row, nor one that is in no batch: that one may be about any row.
pub(super) fn others<S: Server>(first: &Member, queue: &mut VecDeque<Job<S>>) -> Vec<Request<S>> {
    let (mut rows, mut others, mut at) = (HashSet::from([first.row.clone()]), Vec::new(), 0);
    while let Some(Job::Ask(Request { member: Some(member), alone, .. })) = queue.get(at)
        && others.len() + 1 < MOST
    {
        let is_first = rows.insert(member.row.clone());
        if is_first && !alone && member.many.is(&first.many) {
            if let Some(Job::Ask(request)) = queue.remove(at) {
                others.push(Request { place: at, ..request });
            }
        } else {
            at += 1;
        }
    }
    others
}

/// Puts the requests that a batch left out back to their places, so that each waits for no more than before.
pub(super) fn put_back<S: Server>(left: Vec<Request<S>>, queue: &mut VecDeque<Job<S>>) {
    for (before, request) in left.into_iter().enumerate() {
        let place = (request.place + before).min(queue.len());
        queue.insert(place, Job::Ask(Request { alone: true, ..request }));
    }
}

/// The arguments of these requests, as a JSON array.
pub(super) fn objects<S: Server>(requests: &[Request<S>]) -> String {
    let members = requests.iter().filter_map(|request| request.member.as_ref());
    let objects: Vec<&str> = members.map(|member| member.object.as_str()).collect();
    format!("[{}]", objects.join(","))
}

/// Answers the requests that were carried out, and returns the others.
pub(super) fn tell<S: Server>(
    answers: Vec<(String, S::Answer)>,
    requests: Vec<Request<S>>,
) -> Vec<Request<S>> {
    let mut answers: HashMap<String, S::Answer> = answers.into_iter().collect();
    let mut left = Vec::new();
    for request in requests {
        let row = request.member.as_ref().map(|member| member.row.as_str());
        match row.and_then(|row| answers.remove(row)) {
            Some(answer) => {
                let answered = Answered { answer, resent: request.resent };
                reply(request.doing, request.answer, Ok(answered));
            }
            None => left.push(request),
        }
    }
    left
}

/// Tells all of them that they failed.
pub(super) fn refuse<S: Server>(requests: Vec<Request<S>>, error: impl Fn() -> StoreError) {
    for request in requests {
        reply(request.doing, request.answer, Err(error()));
    }
}
