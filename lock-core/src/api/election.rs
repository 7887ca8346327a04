//! One leader among many candidates.

use crate::{
    api::{Lock, run::run_under},
    contract::{ClaimId, Error, Holder, Operation, Token, lease},
    policy::acquire::Acquisition,
    policy::{guard::Guard, hold::Hold},
};
use futures_core::Stream;
use futures_util::stream;
use std::{future::Future, time::Duration};

/// The shortest interval at which [`Election::leaders`] may ask the store.
const SHORTEST_WATCH: Duration = Duration::from_millis(10);
/// How long guards of a lost term may stay before their owner is no candidate any more.
const LINGERS: Duration = Duration::from_secs(1);

/// An election: one of all candidates, on all machines, leads at a time. Made by
/// [`Locks::election`](crate::Locks::election).
///
/// An election is the lock of that name, seen from the other side: to lead is to hold it. So leadership has a lease
/// that is renewed, and ends in time when the leader is cut off. The [token](Hold::token) of the leader's guard is the
/// number of its term, which rises with each term. The guard's [`lost`](Hold::lost) resolves when the term has ended,
/// [`release`](Guard::release) resigns, and `tenure ls` shows who leads.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
/// let election = locks.election("scheduler").with(|lock| lock.label("node 1"));
/// let term = election.campaign().await?;
/// assert_eq!(election.leader().await?.unwrap().info.label.as_deref(), Some("node 1"));
/// term.release().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until a candidate campaigns"]
pub struct Election {
    lock: Lock,
}

impl Election {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// Sets options of this candidate's lock: its label, the lease within which its death is noticed, the longest term
    /// ([`max_hold`](Lock::max_hold)), how long it campaigns ([`wait`](Lock::wait)).
    pub fn with(mut self, options: impl FnOnce(Lock) -> Lock) -> Self {
        self.lock = options(self.lock);
        self
    }

    /// Waits until this candidate leads.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future withdraws the candidate.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::acquire`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn campaign(&self) -> Result<Guard, Error> {
        self.lock.acquire().await
    }

    /// Runs `work` whenever this candidate leads, until the work has ended by itself during a term.
    ///
    /// The work is dropped when its term is lost: at a deadline, that is before another candidate can lead, and after a
    /// forced release it may be later. Then the candidate campaigns again, and its next term starts the work anew. Code
    /// that blocks the thread cannot be stopped this way; let it check [`Hold::is_held`]. When the work has ended, the
    /// candidate resigns.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and then resigns in the background.
    ///
    /// # Errors
    ///
    /// Those of [`campaign`](Self::campaign). The end of a term is no error: [`Error::Lost`] is only returned if this
    /// candidate's [`owner`](Lock::owner) keeps another guard of a term that it has lost, for a second or longer.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled, and if the work panics.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    /// # async fn schedule(_term: tenure_core::Token) {}
    /// locks.election("scheduler").run_while_leading(|term| async move { schedule(term.token()).await }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_while_leading<Work: Future>(
        &self,
        mut work: impl FnMut(Hold) -> Work,
    ) -> Result<Work::Output, Error> {
        let mut barred = Duration::ZERO;
        loop {
            let term = match self.lock.acquire().await {
                // Its owner's other guards of a lost term may be about to go. While there is one, it cannot lead
                // (clause R3).
                Err(Error::Lost { .. }) if barred < LINGERS => {
                    tokio::time::sleep(LINGERS / 20).await;
                    barred += LINGERS / 20;
                    continue;
                }
                term => term?,
            };
            barred = Duration::ZERO;
            match run_under(term, &mut work).await {
                Err(Error::Lost { name, store, cause, .. }) => {
                    tracing::warn!(lock.name = %name, lock.store = %store, cause = cause.as_str(), "the term ended; campaigning again");
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns the current leader, as the store knows it; `None` if there is none.
    ///
    /// For people, and for finding the leader's address (its label). When the answer arrives, another may already lead.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Errors
    ///
    /// Those of [`Locks::holders`](crate::Locks::holders).
    pub async fn leader(&self) -> Result<Option<Holder>, Error> {
        let Acquisition { client, name, .. } = self.lock.checked()?;
        let holders = client.store.holders(&name).await;
        let holders = holders.map_err(|error| client.store.failed(Operation::Looking, error))?;
        Ok(holders.into_iter().next())
    }

    /// Streams the leader, now and after each change, by asking the store at this interval: at least 10 ms.
    ///
    /// A term that begins and ends between two requests is not seen. With
    /// [succession](crate::Locks::with_succession), leaders of one client that follow each other with one grant are seen as
    /// one, whose token is the last of those reserved. After an error it goes on asking.
    ///
    /// # Errors
    ///
    /// A request that fails gives an item with an error of [`leader`](Self::leader). If `every` is shorter than 10 ms
    /// or longer than 365 days, the stream gives [`Error::InvalidOption`] and ends.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// use futures_util::StreamExt;
    /// use std::{pin::pin, time::Duration};
    /// # let locks = tenure_core::Locks::new(tenure_core::Memory::new());
    ///
    /// let election = locks.election("scheduler");
    /// let mut leaders = pin!(election.leaders(Duration::from_secs(1)));
    /// assert!(leaders.next().await.unwrap()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn leaders(&self, every: Duration) -> impl Stream<Item = Result<Option<Holder>, Error>> + Send {
        let election = self.clone();
        stream::unfold(Some(Watch::default()), move |watch| {
            let election = election.clone();
            async move {
                let mut watch = watch?;
                if let Err(error) = lease::check("every", every, SHORTEST_WATCH) {
                    return Some((Err(error), None));
                }
                loop {
                    if std::mem::replace(&mut watch.asked, true) {
                        tokio::time::sleep(every).await;
                    }
                    match election.leader().await {
                        Ok(leader) => {
                            let seen = leader.as_ref().map(|leader| (leader.claim, leader.token));
                            if watch.told.replace(seen) != Some(seen) {
                                return Some((Ok(leader), Some(watch)));
                            }
                        }
                        Err(error) => {
                            watch.told = None;
                            return Some((Err(error), Some(watch)));
                        }
                    }
                }
            }
        })
    }
}

/// The state of a stream of leaders.
#[derive(Default)]
struct Watch {
    asked: bool,
    /// The last leader in the stream; `None` at first and after an error.
    told: Option<Seen>,
}

/// A leader's term; `None` without a leader. A foreign client may have neither claim nor token.
type Seen = Option<(Option<ClaimId>, Option<Token>)>;

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        contract::{Error, Owner},
        memory::Memory,
    };
    use futures_util::StreamExt;
    use std::{future::pending, pin::pin, sync::mpsc, thread, time::Duration};
    use tokio::runtime::Builder;

    #[tokio::test]
    async fn leaders_refuses_a_zero_pause() {
        let locks = Locks::new(Memory::new());
        let election = locks.election("a");
        let mut leaders = pin!(election.leaders(Duration::ZERO));
        let first = leaders.next().await.unwrap();
        assert!(matches!(first, Err(Error::InvalidOption { .. })), "{first:?}");
        assert!(leaders.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn candidate_waits_for_its_owners_other_guards_of_a_lost_term() {
        let locks = Locks::new(Memory::new());
        let election = locks.election("a").with(|lock| lock.owner(&Owner::new()));
        let other = election.campaign().await.unwrap();
        let mut terms = 0;
        let leading = election.run_while_leading(|_| {
            terms += 1;
            let is_first = terms == 1;
            async move { if is_first { pending().await } else { "led again" } }
        });
        let losing = async {
            locks.force_release("a").await.unwrap();
            other.lost().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop(other);
        };
        assert_eq!(tokio::join!(leading, losing).0.unwrap(), "led again");
    }

    /// On a thread of its own: a loop without a pause would also stop a timer here.
    #[test]
    fn campaign_ends_if_its_owner_keeps_a_lost_term() {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            tell.send(runtime.block_on(async {
                let locks = Locks::new(Memory::new());
                let election = locks.election("a").with(|lock| lock.owner(&Owner::new()));
                let _term = election.campaign().await.unwrap();
                let leading = election.run_while_leading(|_| pending::<()>());
                let (led, forced) = tokio::join!(leading, locks.force_release("a"));
                assert_eq!(forced.unwrap().len(), 1);
                led
            }))
            .unwrap();
        });
        let led = told.recv_timeout(Duration::from_secs(10)).expect("it campaigns for ever");
        assert!(matches!(led, Err(Error::Lost { .. })), "{led:?}");
    }
}
