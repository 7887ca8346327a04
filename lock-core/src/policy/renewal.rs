//! The renewal of leases in the background: one task per client, nearest event first, in batches.

use super::{holding::Holding, store::Store, timing::Ticket};
use crate::{
    contract::{Epoch, Grant, Moment},
    store::Renewal,
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Display,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// All holds of one client, sorted by their next event.
///
/// A hold's next event is a renewal, its deadline, or the end of `max_hold`. tokio-util's `DelayQueue` would wake the
/// task at every insertion into an empty queue, which is every uncontended acquire; this agenda wakes it only for an
/// event that is nearer than the one it sleeps for.
pub(crate) struct Renewals {
    store: Arc<Store>,
    agenda: Mutex<Agenda>,
    changed: Notify,
    stop: CancellationToken,
    last_id: AtomicU64,
}

#[derive(Default)]
struct Agenda {
    events: BTreeMap<(Moment, u64), Arc<Holding>>,
    /// When each hold's event is: the key to find it by.
    times: HashMap<u64, Moment>,
    /// The event for which the task sleeps.
    waking_at: Option<Moment>,
    /// The store's epoch, if it has any: when it ends, holds are lost.
    epoch: Option<Epoch>,
    running: bool,
}

impl Agenda {
    fn put(&mut self, hold: Arc<Holding>, at: Moment) {
        self.take(hold.id);
        self.times.insert(hold.id, at);
        self.events.insert((at, hold.id), hold);
    }

    fn take(&mut self, id: u64) -> Option<Arc<Holding>> {
        let at = self.times.remove(&id)?;
        self.events.remove(&(at, id))
    }
}

impl Renewals {
    pub(super) fn new(store: Arc<Store>, stop: CancellationToken) -> Self {
        let (agenda, changed, last_id) = (Mutex::default(), Notify::new(), AtomicU64::new(0));
        Self { store, agenda, changed, stop, last_id }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed)
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `hold` to the agenda, if it has an event to come.
    pub(super) fn add(self: &Arc<Self>, hold: &Arc<Holding>) {
        let start = {
            let mut agenda = self.agenda();
            // Asked under the lock, so that an older answer never replaces a newer one.
            let Some(at) = hold.next_event() else { return };
            self.put(&mut agenda, hold, at);
            self.follow(&mut agenda, hold.grant.epoch.as_ref());
            !std::mem::replace(&mut agenda.running, true)
        };
        if start {
            let running = Running(Arc::clone(self));
            hold.background().spawn(async move { running.0.run().await });
        }
        // Its epoch may have ended while it was added.
        if hold.grant.is_forgotten() && !hold.is_held() {
            self.remove(hold.id);
        }
    }

    /// Moves `hold` to its next event, unless it has left the agenda meanwhile.
    pub(super) fn move_on(&self, hold: &Arc<Holding>) {
        let mut agenda = self.agenda();
        if agenda.times.contains_key(&hold.id)
            && let Some(at) = hold.next_event()
        {
            self.put(&mut agenda, hold, at);
        }
    }

    fn put(&self, agenda: &mut Agenda, hold: &Arc<Holding>, at: Moment) {
        agenda.put(Arc::clone(hold), at);
        if agenda.waking_at.is_none_or(|waking| at < waking) {
            self.changed.notify_one();
        }
    }

    /// Follows this epoch from now on, unless another is followed: one that has ended, until its holds are lost.
    fn follow(&self, agenda: &mut Agenda, epoch: Option<&Epoch>) {
        if let Some(epoch) = epoch
            && agenda.epoch.is_none()
        {
            agenda.epoch = Some(epoch.clone());
            self.changed.notify_one();
        }
    }

    /// Removes that hold from the agenda.
    pub(super) fn remove(&self, id: u64) {
        // The hold is dropped after unlocking.
        let _hold = self.agenda().take(id);
    }

    async fn run(self: &Arc<Self>) {
        loop {
            let (next, epoch) = {
                let mut agenda = self.agenda();
                agenda.waking_at = agenda.events.keys().next().map(|(at, _)| *at);
                (agenda.waking_at, agenda.epoch.clone())
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.changed.notified() => {}
                () = ended(epoch.as_ref()) => self.forget(),
                () = reached(next) => self.attend(),
            }
        }
    }

    /// Handles the end of an epoch: all holds of it are lost.
    fn forget(&self) {
        let holds: Vec<_> = {
            let mut agenda = self.agenda();
            let mut epochs = agenda.events.values().filter_map(|hold| hold.grant.epoch.as_ref());
            agenda.epoch = epochs.find(|epoch| !epoch.has_ended()).cloned();
            agenda.events.values().map(Arc::clone).collect()
        };
        for hold in holds {
            if !hold.is_held() {
                self.remove(hold.id);
            }
        }
    }

    /// Handles every hold whose event has come: some are lost, some are renewed.
    fn attend(self: &Arc<Self>) {
        let now = Moment::now();
        // Stores end a request by the shortest lease in it. So only holds that wait about equally long for the answer
        // (less than twice as long) share one, and a short lease costs no long one its renewal (clause L9).
        let mut alike: BTreeMap<(u32, u64), Vec<Due>> = BTreeMap::new();
        for hold in self.due(now) {
            if !hold.is_held() {
                self.remove(hold.id);
                continue;
            }
            let due = hold.wants_renewal(now).then(|| hold.start_renewal(now));
            // While an answer is awaited, the next event is the deadline.
            self.move_on(&hold);
            if let Some((grant, ticket)) = due {
                let patience = hold.patience(now).as_millis().max(1).ilog2();
                let batch = alike.entry((patience, self.store.shard(&grant.name))).or_default();
                batch.push(Due { hold, grant, ticket });
            }
        }
        let largest = self.store.capabilities().renew_batch.max(1);
        let mut batches: Vec<_> = alike.into_values().collect();
        // The nearest deadline comes first (clause L4).
        batches.sort_by_cached_key(|batch| batch.iter().filter_map(|due| due.hold.deadline()).min());
        for mut batch in batches {
            while !batch.is_empty() {
                let rest = batch.split_off(largest.min(batch.len()));
                self.start(std::mem::replace(&mut batch, rest));
            }
        }
    }

    fn start(self: &Arc<Self>, batch: Vec<Due>) {
        tokio::spawn(Arc::clone(self).renew(batch));
    }

    /// The holds whose event has come, and those that may share a batch with them, nearest first.
    fn due(&self, now: Moment) -> Vec<Arc<Holding>> {
        let agenda = self.agenda();
        let ready = |((at, _), hold): &(&(Moment, u64), &Arc<Holding>)| *at <= now || hold.wants_renewal(now);
        agenda.events.iter().take_while(ready).map(|(_, hold)| Arc::clone(hold)).collect()
    }

    /// Each hold waits for the answer as long as its own lease allows: a lease too short for a distant store costs no
    /// other hold its renewal (clause L9). A refused lease costs no other its renewal either: a batch that is refused
    /// as a whole is sent again in halves, until the refused one stands alone.
    async fn renew(self: Arc<Self>, mut batch: Vec<Due>) {
        // A release may have begun since they were chosen, and no renewal is sent after it (clause L4).
        batch.retain(|due| {
            let is_held = due.hold.is_held();
            if !is_held {
                due.hold.abandon_renewal(due.ticket);
            }
            is_held
        });
        if batch.is_empty() {
            return;
        }
        let grants: Vec<Grant> = batch.iter().map(|due| due.grant.clone()).collect();
        let sent = Moment::now();
        let mut refused = Vec::new();
        let mut answer = pin!(self.store.renew(&grants));
        let mut waiting: Vec<(Duration, &Due, usize)> =
            batch.iter().enumerate().map(|(at, due)| (due.hold.patience(sent), due, at)).collect();
        waiting.sort_by_key(|(patience, ..)| *patience);
        while let Some((least, ..)) = waiting.first() {
            let least = *least;
            let left = least.saturating_sub(Moment::now().since(sent));
            let answers = match tokio::time::timeout(left, &mut answer).await {
                Ok(Ok(answers)) => answers,
                Ok(Err(error)) if grants.len() > 1 && !error.is_unavailable() => {
                    let (store, count) = (&self.store.name, grants.len());
                    tracing::debug!(lock.store = %store, count, %error, "the store refused a batch of renewals; sending it in halves");
                    refused.extend(waiting.iter().map(|(.., at)| *at));
                    break;
                }
                Ok(Err(error)) => {
                    self.failed(&waiting, &error);
                    Vec::new()
                }
                Err(_) => {
                    let later =
                        waiting.split_off(waiting.partition_point(|(patience, ..)| *patience <= least));
                    let given_up = std::mem::replace(&mut waiting, later);
                    self.failed(&given_up, &"no answer");
                    for (_, due, _) in given_up {
                        self.finish(due, Renewal::Unanswered);
                    }
                    continue;
                }
            };
            for (_, due, at) in waiting {
                self.finish(due, answers.get(at).copied().unwrap_or(Renewal::Unanswered));
            }
            return;
        }
        let mut again: Vec<Due> = batch
            .into_iter()
            .enumerate()
            .filter(|(at, _)| refused.contains(at))
            .map(|(_, due)| due)
            .collect();
        let rest = again.split_off(again.len() / 2);
        for half in [again, rest] {
            self.start(half);
        }
    }

    fn finish(&self, due: &Due, answer: Renewal) {
        due.hold.finish_renewal(due.ticket, answer);
        self.move_on(&due.hold);
    }

    fn failed(&self, waiting: &[(Duration, &Due, usize)], error: &dyn Display) {
        let store = &self.store.name;
        let count = Some(waiting.len()).filter(|count| *count > 1);
        let why = Arc::from(error.to_string());
        for (_, due, _) in waiting {
            due.hold.renewal_failed(&why);
        }
        let name = waiting.first().map_or("", |(_, due, _)| due.grant.name.as_str());
        tracing::warn!(lock.name = %name, lock.store = %store, count, %error, "a renewal failed; trying again until the lease expires");
    }
}

/// One hold in a batch: the grant to renew.
struct Due {
    hold: Arc<Holding>,
    grant: Grant,
    ticket: Ticket,
}

async fn reached(next: Option<Moment>) {
    match next {
        Some(at) => at.reached().await,
        None => std::future::pending().await,
    }
}

async fn ended(epoch: Option<&Epoch>) {
    match epoch {
        Some(epoch) => epoch.ended().await,
        None => std::future::pending().await,
    }
}

/// Marks the task as running, from before it is spawned. When its runtime goes away, even before the first poll,
/// another may take over.
struct Running(Arc<Renewals>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut agenda = self.0.agenda();
        agenda.running = false;
        agenda.waking_at = None;
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        api::Locks,
        contract::{Capabilities, Grant, LossCause, Moment, StoreError},
        forward_backend,
        memory::Memory,
        policy::guard::Guard,
        store::{Backend, Renewal},
    };
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    /// How long each renewal's answer takes.
    const WAY: Duration = Duration::from_millis(80);
    /// A lease whose renewals are given up before that.
    const SHORT: Duration = Duration::from_millis(390);
    /// One that is long enough for it, and still shares batches with those.
    const LONG: Duration = Duration::from_millis(760);

    struct Far(Memory);

    #[async_trait::async_trait]
    impl Backend for Far {
        forward_backend!(self => self.0, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            let renewed = self.0.renew(grants).await;
            tokio::time::sleep(WAY).await;
            renewed
        }
    }

    /// Several of them, so that one is always about to be renewed.
    #[tokio::test(start_paused = true)]
    async fn leases_too_short_to_renew_cost_no_other_lease() {
        let locks = Locks::new(Far(Memory::new()));
        let long = locks.lock("long").lease(LONG).acquire().await.unwrap();
        let end = Moment::now() + LONG * 8;
        let short = async |number: u32| {
            tokio::time::sleep(SHORT / 3 * number).await;
            while !end.has_passed() {
                let short = locks.lock(format!("short {number}")).lease(SHORT).acquire().await.unwrap();
                short.lost().await;
            }
        };
        tokio::join!(short(0), short(1), short(2));
        assert!(long.is_held(), "{:?}", long.loss());
    }

    /// Answers no renewal.
    struct Down(Memory);

    #[async_trait::async_trait]
    impl Backend for Down {
        forward_backend!(self => self.0, except renew);

        async fn renew(&self, _: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            Err(StoreError::unavailable("Connection refused"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expired_lease_tells_why_its_renewal_failed() {
        let guard = Locks::new(Down(Memory::new())).lock("a").acquire().await.unwrap();
        guard.lost().await;
        let error = guard.release().await.unwrap_err().to_string();
        assert!(error.contains("expired") && error.contains("failed: Connection refused"), "{error}");
    }

    /// Whose connection is cut when it was idle for a minute. The next request is then sent twice, so its answer
    /// settles nothing.
    struct CutWhenIdle {
        memory: Memory,
        last: Mutex<Option<Moment>>,
    }

    #[async_trait::async_trait]
    impl Backend for CutWhenIdle {
        forward_backend!(self => self.memory, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            let now = Moment::now();
            let before = self.last.lock().unwrap().replace(now);
            let renewed = self.memory.renew(grants).await?;
            if before.is_some_and(|before| now.since(before) < Duration::from_mins(1)) {
                return Ok(renewed);
            }
            Ok(vec![Renewal::Unanswered; grants.len()])
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_disconnect_costs_no_long_lease() {
        let locks = Locks::new(CutWhenIdle { memory: Memory::new(), last: Mutex::default() });
        let guard = locks.lock("a").lease(Duration::from_hours(2)).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_hours(6)).await;
        assert!(guard.is_held(), "{:?}", guard.loss());
    }

    /// Needs two trips for all but the first lease, and leaves them unanswered if that takes a twelfth of the shortest
    /// one or longer, as lease rows do.
    struct TwoTrips(Memory);

    const TWO_TRIPS: Duration = Duration::from_millis(90);

    #[async_trait::async_trait]
    impl Backend for TwoTrips {
        forward_backend!(self => self.0, except renew);

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            tokio::time::sleep(TWO_TRIPS).await;
            let shortest = grants.iter().map(|grant| grant.lease).min().unwrap_or_default();
            let in_time = if TWO_TRIPS < shortest / 12 { grants.len() } else { 1 };
            let mut answers = self.0.renew(&grants[..in_time]).await?;
            answers.resize(grants.len(), Renewal::Unanswered);
            Ok(answers)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_lease_does_not_stop_renewals_of_a_long_one() {
        let locks = Locks::new(TwoTrips(Memory::new()));
        let short = locks.lock("short").lease(Duration::from_secs(1)).acquire().await.unwrap();
        let long = locks.lock("long").lease(Duration::from_secs(30)).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(short.is_held() && long.is_held(), "{:?}, {:?}", short.loss(), long.loss());
    }

    /// Refuses each request that is about one of these names, and remembers how many leases each request was about.
    struct Refuses {
        memory: Memory,
        names: &'static [&'static str],
        error: fn(&str) -> StoreError,
        asked: Arc<Mutex<Vec<usize>>>,
    }

    #[async_trait::async_trait]
    impl Backend for Refuses {
        forward_backend!(self => self.memory, except renew, capabilities);

        fn capabilities(&self) -> Capabilities {
            Capabilities { renew_batch: 8, ..self.memory.capabilities() }
        }

        async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
            self.asked.lock().unwrap().push(grants.len());
            if grants.iter().any(|grant| self.names.contains(&grant.name.as_str())) {
                return Err((self.error)("no"));
            }
            self.memory.renew(grants).await
        }
    }

    async fn eight_held(
        names: &'static [&'static str],
        error: fn(&str) -> StoreError,
    ) -> (Vec<Guard>, Arc<Mutex<Vec<usize>>>) {
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let store = Refuses { memory: Memory::new(), names, error, asked: Arc::clone(&asked) };
        let (locks, mut guards) = (Locks::with_lease(store, Duration::from_secs(30)).unwrap(), Vec::new());
        for number in 0..8 {
            guards.push(locks.lock(number.to_string()).acquire().await.unwrap());
        }
        (guards, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn refused_batch_costs_only_the_refused_lease() {
        let (guards, asked) = eight_held(&["5"], |what| StoreError::failed(what)).await;
        tokio::time::sleep(Duration::from_millis(10_100)).await;
        let mut sizes = asked.lock().unwrap().clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 1, 2, 2, 4, 4, 8]);
        assert_eq!(guards[5].lost().await, LossCause::Expired);
        tokio::time::sleep(Duration::from_mins(2)).await;
        for (number, guard) in guards.iter().enumerate() {
            assert_eq!(guard.is_held(), number != 5, "{number}: {:?}", guard.loss());
        }
    }

    /// Asking again may help, and so it is not asked again at once.
    #[tokio::test(start_paused = true)]
    async fn unsent_batch_is_not_split() {
        let (_guards, asked) = eight_held(&["5"], |what| StoreError::unavailable(what)).await;
        tokio::time::sleep(Duration::from_millis(10_100)).await;
        assert_eq!(*asked.lock().unwrap(), [8]);
    }
}
