//! The queue inside one process: one contender per name talks to the store, the others wait behind it in memory.

use super::holding::Holding;
use crate::{LossCause, Mode, Name, Owner};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::{Notify, Semaphore};

/// The queues of one `Locks`, one for each name that is in use, and none for any other (clause W8).
#[derive(Default)]
pub(crate) struct Queues {
    slots: Mutex<HashMap<Name, (Arc<Slot>, usize)>>,
}

/// One name's queue.
struct Slot {
    /// One permit: the right to contend for the name, and then to hold it. Tokio's semaphore is fair.
    turn: Semaphore,
    /// The holds that their owners may enter again: the present one, and lost ones whose guards are still alive.
    owned: Mutex<Vec<Weak<Holding>>>,
    /// Told when a hold with an owner begins, since that owner may stand in the queue a second time.
    entered: Notify,
}

impl Slot {
    async fn next(&self) {
        match self.turn.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => unreachable!("the semaphore of a queue is never closed"),
        }
    }
}

impl Queues {
    fn slots(&self) -> MutexGuard<'_, HashMap<Name, (Arc<Slot>, usize)>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat in the queue of `name`.
    pub(crate) fn join(self: &Arc<Self>, name: &Name) -> Seat {
        let mut slots = self.slots();
        let slot = match slots.entry(name.clone()) {
            Entry::Occupied(mut entry) => {
                let (slot, seats) = entry.get_mut();
                *seats += 1;
                Arc::clone(slot)
            }
            Entry::Vacant(entry) => {
                let slot = Arc::new(Slot {
                    turn: Semaphore::new(1),
                    owned: Mutex::default(),
                    entered: Notify::new(),
                });
                entry.insert((Arc::clone(&slot), 1));
                slot
            }
        };
        Seat { queues: Arc::clone(self), name: name.clone(), slot }
    }

    /// How many names are in use.
    pub(crate) fn len(&self) -> usize {
        self.slots().len()
    }

    /// Whether nobody holds or waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots().is_empty()
    }
}

/// A place in a name's queue: the queue lives as long as anybody has one.
pub(crate) struct Seat {
    queues: Arc<Queues>,
    name: Name,
    slot: Arc<Slot>,
}

impl Seat {
    /// Waits, in order of arrival, for the right to contend.
    pub(crate) async fn turn(self) -> Turn {
        self.slot.next().await;
        Turn(self)
    }

    /// Another seat in the same queue.
    fn again(&self) -> Self {
        self.queues.join(&self.name)
    }

    /// The right to contend, if nobody has it or waits for it.
    pub(crate) fn try_turn(self) -> Option<Turn> {
        self.slot.turn.try_acquire().ok()?.forget();
        Some(Turn(self))
    }

    fn owned(&self) -> MutexGuard<'_, Vec<Weak<Holding>>> {
        self.slot.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters what `owner` holds already: `None` when it holds nothing.
    pub(crate) fn reenter(&self, owner: &Owner, wanted: Mode) -> Option<Result<Arc<Holding>, Barred>> {
        let mut holds = self.owned();
        holds.retain(|hold| hold.strong_count() > 0);
        holds
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|hold| hold.owner() == Some(owner))
            .find_map(|hold| hold.enter_again(wanted).map(|entered| entered.map(|()| hold)))
    }

    /// Lets the owner of `hold` enter it again, as long as anybody has a seat.
    pub(crate) fn entered(&self, hold: &Arc<Holding>) {
        self.owned().push(Arc::downgrade(hold));
        self.slot.entered.notify_waiters();
    }

    /// Waits for the turn, or until `owner` can enter what it has come to hold meanwhile by another acquisition.
    pub(crate) async fn turn_or_reentry(
        self,
        owner: &Owner,
        wanted: Mode,
    ) -> Result<Turn, Result<Arc<Holding>, Barred>> {
        {
            let turn = self.slot.next();
            tokio::pin!(turn);
            loop {
                let entered = self.slot.entered.notified();
                tokio::pin!(entered);
                entered.as_mut().enable();
                if let Some(entry) = self.reenter(owner, wanted) {
                    return Err(entry);
                }
                tokio::select! {
                    () = &mut turn => break,
                    () = entered => {}
                }
            }
        }
        Ok(Turn(self))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut slots = self.queues.slots();
        if let Entry::Occupied(mut entry) = slots.entry(self.name.clone()) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}

/// Why an owner cannot enter again.
pub(crate) enum Barred {
    /// It has lost what it held, and its guards are still alive.
    Lost(LossCause),
    /// It holds the name so, which does not include what it wants.
    Holds(Mode),
}

/// The right to contend for a name and to hold it alone; passes to the next in line when dropped.
pub(crate) struct Turn(Seat);

impl Turn {
    /// Another seat in the same queue.
    pub(crate) fn seat(&self) -> Seat {
        self.0.again()
    }
}

/// What a claim has in its name's queue while it contends, and then while it holds.
pub(crate) enum Place {
    /// The right to contend: nobody else of this process asks meanwhile.
    Turn(Turn),
    /// The queue stays, and others may contend.
    Seat(Seat),
}

impl Place {
    /// What is kept of it by a hold in this mode: beside one that is not alone, others may contend.
    pub(crate) fn while_held(self, mode: Mode) -> Self {
        match self {
            Self::Turn(turn) if mode != Mode::Exclusive => Self::Seat(turn.seat()),
            place => place,
        }
    }

    /// The right to contend, if nobody else of this process has it or waits for it.
    pub(crate) fn turn(self) -> Option<Turn> {
        match self {
            Self::Turn(turn) => Some(turn),
            Self::Seat(seat) => seat.try_turn(),
        }
    }

    /// Another seat in the same queue.
    pub(crate) fn seat(&self) -> Seat {
        match self {
            Self::Turn(turn) => turn.seat(),
            Self::Seat(seat) => seat.again(),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.slot.turn.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn name() -> Name {
        Name::new("a").unwrap()
    }

    #[tokio::test]
    async fn first_come_first_served() {
        let queues = Arc::new(Queues::default());
        let turn = queues.join(&name()).turn().await;
        let (mut two, mut three) =
            (Box::pin(queues.join(&name()).turn()), Box::pin(queues.join(&name()).turn()));
        assert!(two.as_mut().now_or_never().is_none() && three.as_mut().now_or_never().is_none());
        drop(turn);
        assert!(three.as_mut().now_or_never().is_none(), "the third overtook the second");
        assert!(queues.join(&name()).try_turn().is_none(), "a try overtook the queue");
        let turn = two.as_mut().now_or_never().expect("the second has its turn");
        drop(turn);
        assert!(three.as_mut().now_or_never().is_some());
    }

    #[test]
    fn a_queue_goes_with_its_last_user() {
        let queues = Arc::new(Queues::default());
        let (one, other) = (queues.join(&name()), queues.join(&name()));
        let turn = one.try_turn().unwrap();
        assert!(other.try_turn().is_none());
        assert_eq!(queues.len(), 1);
        assert!(queues.join(&name()).try_turn().is_none(), "the queue was replaced while it was in use");
        drop(turn);
        assert_eq!(queues.len(), 0);
    }
}
