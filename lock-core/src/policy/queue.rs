//! The queue inside one client: one contender for each name asks the store, the others wait behind it in memory.

mod order;

use super::succession::{Estate, Terms};
use crate::contract::{ClaimId, Holder, HolderInfo, Moment, Name, Token};
use order::{Order, PICK_UP};
use std::{
    collections::{HashMap, hash_map::Entry},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};
use tokio::{sync::Notify, task::coop::consume_budget, time::timeout};

/// The queues of one client: one for each name in use, and no others (clause W8).
#[derive(Default)]
pub(crate) struct Queues {
    /// Each with its number of seats.
    in_use: Mutex<HashMap<Name, (Arc<Queue>, usize)>>,
}

/// One name's queue.
#[derive(Default)]
struct Queue {
    order: Mutex<Order>,
    /// Notified when waiters may find something better than the turn.
    news: Notify,
    /// The task that has the turn and holds the name: its waiters name it in errors.
    occupant: Mutex<Option<Occupant>>,
}

/// A waiter's number: the waiter leaves the queue when this is dropped.
struct Ticket<'a> {
    queue: &'a Queue,
    number: u64,
}

/// A holder of this client.
#[derive(Clone)]
pub(crate) struct Occupant {
    pub(crate) claim: ClaimId,
    pub(crate) token: Token,
    pub(crate) info: Arc<HolderInfo>,
    pub(crate) since: Moment,
}

impl Queues {
    fn in_use(&self) -> MutexGuard<'_, HashMap<Name, (Arc<Queue>, usize)>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat in the queue of `name`.
    pub(crate) fn join(self: &Arc<Self>, name: &Name) -> Seat {
        let mut in_use = self.in_use();
        let queue = match in_use.entry(name.clone()) {
            Entry::Occupied(mut entry) => {
                let (queue, seats) = entry.get_mut();
                *seats += 1;
                Arc::clone(queue)
            }
            Entry::Vacant(entry) => {
                let queue = Arc::<Queue>::default();
                entry.insert((Arc::clone(&queue), 1));
                queue
            }
        };
        Seat { queue, turn: None, _place: Place { queues: Arc::clone(self), name: name.clone() } }
    }

    /// Makes the waiters for `name` look again for something better than the turn.
    pub(crate) fn tell(&self, name: &Name) {
        let queue = self.in_use().get(name).map(|(queue, _)| Arc::clone(queue));
        if let Some(queue) = queue {
            queue.news.notify_waiters();
        }
    }

    /// This client's exclusive holder of `name`, with times by this process's clock.
    pub(crate) fn occupant(&self, name: &Name) -> Option<Holder> {
        let queue = self.in_use().get(name).map(|(queue, _)| Arc::clone(queue))?;
        let Occupant { claim, token, info, since } = queue.occupant().clone()?;
        let age = Moment::now().since(since);
        let began = SystemTime::now() - age;
        Some(Holder::of(name.clone()).claim(claim, token).info((*info).clone()).since(began, age))
    }

    /// How many names are in use.
    pub(crate) fn len(&self) -> usize {
        self.in_use().len()
    }

    /// Whether all queues are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_use().is_empty()
    }
}

/// Keeps a name's queue alive: every waiter and every holder of the name has one, with the turn or without.
pub(crate) struct Seat {
    queue: Arc<Queue>,
    turn: Option<Turn>,
    /// Given up last, even if passing on the turn panics.
    _place: Place,
}

/// Counts one user of a name's queue.
struct Place {
    queues: Arc<Queues>,
    name: Name,
}

/// The right to contend for a name, and then to hold it exclusively; passes to the next in the queue when dropped.
pub(crate) struct Turn {
    queue: Arc<Queue>,
    /// The grant that comes with it. It passes on with the turn, or is released.
    estate: Option<Box<Estate>>,
}

impl Seat {
    /// Waits, in order of arrival, for the turn. On these terms, a grant may [come with it](Self::inherit).
    pub(super) async fn wait(&mut self, terms: Option<&Terms>) {
        let turn = self.queue.next(terms).await;
        self.turn = Some(turn);
    }

    /// Waits for the turn, or until `look` finds something better. It looks at once, whenever it is
    /// [told](Queues::tell), and when the turn comes, which passes on if there is something better.
    pub(super) async fn wait_or<T>(
        &mut self,
        terms: Option<&Terms>,
        look: impl Fn() -> Option<T>,
    ) -> Option<T> {
        let turn = {
            let mut turn = pin!(self.queue.next(terms));
            loop {
                let mut news = pin!(self.queue.news.notified());
                news.as_mut().enable();
                if let found @ Some(_) = look() {
                    return found;
                }
                tokio::select! {
                    biased;
                    turn = &mut turn => break turn,
                    () = news => {}
                }
            }
        };
        if let found @ Some(_) = look() {
            return found;
        }
        self.turn = Some(turn);
        None
    }

    /// Takes the turn if it is free and not awaited. Returns whether this seat has the turn.
    pub(crate) fn try_turn(&mut self) -> bool {
        if self.turn.is_none() {
            self.turn = self.queue.try_next();
        }
        self.turn.is_some()
    }

    /// Records the holder of the name while this seat has the turn; `None` if it has none any more.
    pub(crate) fn occupied_by(&self, occupant: Option<Occupant>) {
        if self.turn.is_some() {
            *self.queue.occupant() = occupant;
        }
    }

    /// Whether others of this client wait for the turn.
    pub(super) fn has_followers(&self) -> bool {
        self.queue.order().is_awaited()
    }

    /// Gives up the turn but keeps the seat. Others may contend once the result is dropped.
    pub(crate) fn pass_turn(&mut self) -> Option<Turn> {
        self.turn.take()
    }

    /// Whether the next in the queue may inherit a grant on these terms.
    pub(super) fn is_awaited(&self, terms: &Terms) -> bool {
        self.turn.is_some() && self.queue.order().next_terms() == Some(terms)
    }

    /// Passes the turn on together with a grant.
    pub(super) fn leave_to_next(mut self, estate: Estate) {
        if let Some(turn) = &mut self.turn {
            turn.estate = Some(Box::new(estate));
        }
    }

    /// Takes the grant that came with the turn.
    pub(super) fn inherit(&mut self) -> Option<Estate> {
        self.turn.as_mut()?.estate.take().map(|estate| *estate)
    }
}

impl Queue {
    fn occupant(&self) -> MutexGuard<'_, Option<Occupant>> {
        self.occupant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(self: &Arc<Self>, terms: Option<&Terms>) -> Turn {
        self.take_back();
        let joined = {
            let mut order = self.order();
            if order.take() { None } else { Some(order.join(terms.cloned())) }
        };
        let Some((number, wake)) = joined else {
            let turn = self.turn(None);
            // A store may answer at once, as memory does. A loop of such requests lets other tasks run now and then.
            consume_budget().await;
            return turn;
        };
        let _ticket = Ticket { queue: self, number };
        loop {
            let picked_up = self.order().pick_up(number);
            if let Some(estate) = picked_up {
                return self.turn(estate);
            }
            // No task may be left to poll the waiter that was offered the turn, so the others look now and then.
            self.take_back();
            let _ = timeout(PICK_UP, wake.notified()).await;
        }
    }

    fn try_next(self: &Arc<Self>) -> Option<Turn> {
        self.take_back();
        let taken = self.order().take();
        taken.then(|| self.turn(None))
    }

    fn turn(self: &Arc<Self>, estate: Option<Box<Estate>>) -> Turn {
        Turn { queue: Arc::clone(self), estate }
    }

    /// Passes on a turn that was offered to a waiter that has not come for it.
    fn take_back(&self) {
        let left = self.order().take_back();
        if let Some(estate) = left {
            self.offer(estate);
        }
    }

    /// Passes the turn on to the next waiter.
    fn offer(&self, estate: Option<Box<Estate>>) {
        let (next, released) = self.order().offer(estate);
        // Its release begins before the next one contends. If it panics, the next one is told all the same: there may be
        // no thread for a release.
        let _told = Told(next);
        drop(released);
    }
}

/// Tells a waiter when it is dropped.
struct Told(Option<Arc<Notify>>);

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(waiter) = &self.0 {
            waiter.notify_one();
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let left = self.queue.order().leave(self.number);
        if let Some(estate) = left {
            self.queue.offer(estate);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.queue.occupant() = None;
        self.queue.offer(self.estate.take());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut in_use = self.queues.in_use();
        if let Entry::Occupied(mut entry) = in_use.entry(self.name.clone()) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests;
