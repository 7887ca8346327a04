//! One connection on which all of a client's waiters hear of releases.

use super::{
    connecting::{Pauses, TRY_EVERY},
    dial::Dial,
    errors::Trouble,
    notices::QueuedClaims,
    pubsub::{self, Heard, Refused, Sink},
};
use futures_util::{StreamExt, stream::BoxStream};
use redis::RedisError;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tenure_core::Background;
use tokio::{
    sync::{Notify, futures::Notified},
    task::AbortHandle,
    time::Instant,
};

/// The channels that this client listens to, all on one connection.
///
/// A message is only a hint: it may be lost, and waiters poll anyway. So a broken connection is replaced, and all
/// waiters are woken once because a message may have been missed. A channel is left with its last listener.
pub(crate) struct Subscriptions {
    hub: Arc<Hub>,
    /// Where the connection lives: listeners may be on any runtime.
    background: Background,
}

struct Hub {
    dial: Dial,
    /// Whether messages about a lock are published only in its shard of a Cluster, as far as known.
    in_shard: AtomicBool,
    /// Gets the messages with a payload, each for one claim. Empty messages are hints for all listeners of the channel.
    turns: QueuedClaims,
    topics: Mutex<Topics>,
    /// Notified when there are changes.
    changed: Notify,
}

#[derive(Default)]
struct Topics {
    by_channel: HashMap<Arc<str>, Topic>,
    /// Channels that were joined or left since the task last looked.
    changes: Vec<Arc<str>>,
    /// Channels of which the server may count this client as a subscriber.
    subscribed: HashSet<Arc<str>>,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct Topic {
    listeners: usize,
    state: SubscriptionState,
    bell: Arc<Notify>,
    /// How often it has rung.
    rings: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SubscriptionState {
    #[default]
    Wanted,
    /// The server has confirmed the subscription.
    Live,
    /// The server has ended it, or refused it: another node keeps the channel's slot, or the user may not listen to it.
    Ended,
}

impl Subscriptions {
    /// For one server, or for a node of a Cluster: there messages are published `in_shard`, unless the node is too old
    /// for that.
    pub(crate) fn new(dial: Dial, in_shard: bool, turns: QueuedClaims, background: Background) -> Self {
        let (topics, in_shard) = (Mutex::default(), AtomicBool::new(in_shard));
        let hub = Arc::new(Hub { dial, in_shard, turns, topics, changed: Notify::new() });
        Self { hub, background }
    }

    /// Begins to listen to a channel.
    pub(crate) fn listen(&self, channel: &str) -> Listening {
        let mut topics = self.hub.topics();
        let known = topics.by_channel.get_key_value(channel).map(|(channel, _)| Arc::clone(channel));
        let channel = known.unwrap_or_else(|| {
            let channel = Arc::<str>::from(channel);
            topics.by_channel.insert(Arc::clone(&channel), Topic::default());
            topics.changes.push(Arc::clone(&channel));
            self.hub.changed.notify_one();
            channel
        });
        let topic = topics.by_channel.entry(Arc::clone(&channel)).or_default();
        topic.listeners += 1;
        let bell = Arc::clone(&topic.bell);
        if topics.task.as_ref().is_none_or(AbortHandle::is_finished) {
            topics.task = Some(self.start());
        }
        Listening(Arc::new(Listener { hub: Arc::clone(&self.hub), channel, bell }))
    }

    /// Whether the server may count this connection as a subscriber of a channel, although no waiter listens to it here
    /// any more.
    pub(crate) fn is_counted_in_vain(&self, channel: &str) -> bool {
        let topics = self.hub.topics();
        topics.subscribed.contains(channel) && !topics.by_channel.contains_key(channel)
    }

    /// Drops the connection. Its listeners get a new one, and so does the next listener.
    pub(crate) fn disconnect(&self) {
        let mut topics = self.hub.topics();
        if let Some(task) = topics.task.take() {
            task.abort();
        }
        topics.interrupt();
        if !topics.by_channel.is_empty() {
            topics.task = Some(self.start());
        }
    }

    fn start(&self) -> AbortHandle {
        self.background.spawn(Arc::clone(&self.hub).run()).abort_handle()
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        if let Some(task) = self.hub.topics().task.take() {
            task.abort();
        }
    }
}

/// A listener to a channel, as long as it or a clone is kept.
#[derive(Clone)]
pub(crate) struct Listening(Arc<Listener>);

struct Listener {
    hub: Arc<Hub>,
    channel: Arc<str>,
    bell: Arc<Notify>,
}

impl Listening {
    pub(crate) fn channel(&self) -> &str {
        &self.0.channel
    }

    /// Whether the server has confirmed the subscription, as far as known.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.state() == SubscriptionState::Live
    }

    fn state(&self) -> SubscriptionState {
        self.topic().0
    }

    /// The state of its topic, and how often that has rung.
    fn topic(&self) -> (SubscriptionState, u64) {
        let topics = self.0.hub.topics();
        topics.by_channel.get(&self.0.channel).map(|topic| (topic.state, topic.rings)).unwrap_or_default()
    }

    /// Waits until the server has confirmed the subscription or no longer serves it. In the latter case, asking it for
    /// the lock shows which server does.
    pub(crate) async fn confirmed(&self) {
        self.until(|state, _| state != SubscriptionState::Wanted).await;
    }

    /// Waits for the first hint, or any other reason to ask again, after the server has confirmed the subscription.
    pub(crate) async fn hint(&self) {
        let (state, rings) = self.topic();
        // A confirmation rings too.
        let enough = rings + if state == SubscriptionState::Wanted { 2 } else { 1 };
        self.until(|_, rings| rings >= enough).await;
    }

    async fn until(&self, so: impl Fn(SubscriptionState, u64) -> bool) {
        loop {
            let rung = self.next();
            tokio::pin!(rung);
            rung.as_mut().enable();
            let (state, rings) = self.topic();
            if so(state, rings) {
                return;
            }
            rung.await;
        }
    }

    /// Waits for the next hint, or any other reason to ask again, from when it is first polled or enabled.
    pub(crate) fn next(&self) -> Notified<'_> {
        self.0.bell.notified()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut topics = self.hub.topics();
        let Some(topic) = topics.by_channel.get_mut(&self.channel) else { return };
        topic.listeners -= 1;
        if topic.listeners == 0 {
            topics.by_channel.remove(&self.channel);
            topics.changes.push(Arc::clone(&self.channel));
            self.hub.changed.notify_one();
        }
    }
}

impl Hub {
    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        let mut pauses = Pauses::default();
        loop {
            while self.topics().by_channel.is_empty() {
                self.changed.notified().await;
            }
            let began = Instant::now();
            // Reconnects as soon as a request has found another master.
            let moved = self.dial.moved();
            tokio::pin!(moved);
            let ended = tokio::select! {
                ended = self.connect() => ended,
                () = &mut moved => Ok(()),
            };
            self.topics().interrupt();
            let Err(error) = ended else { continue };
            if pubsub::knows_no_shards(&error) && self.in_shard.swap(false, Ordering::Relaxed) {
                continue;
            }
            let server = self.dial.server_name();
            let error = server.explain(error);
            tracing::warn!(server = %server.address, %error, "lost the connection for wake-ups; waiters poll meanwhile");
            tokio::select! {
                () = tokio::time::sleep(pauses.after(began.elapsed())) => {}
                () = moved => {}
            }
        }
    }

    /// Serves the listeners until there are none, or until the connection breaks.
    async fn connect(&self) -> Result<(), RedisError> {
        let (sink, heard) = self.dial.subscriptions(self.in_shard.load(Ordering::Relaxed)).await?;
        tokio::select! {
            // Keeps the server's order: a push before an answer is handled first.
            biased;
            error = self.pass_on(heard) => Err(error),
            ended = self.follow(sink) => ended,
        }
    }

    async fn pass_on(&self, mut heard: BoxStream<'static, Heard>) -> RedisError {
        while let Some(heard) = heard.next().await {
            match heard {
                Heard::Ended(channel) => self.ended(&channel),
                Heard::Message(message) => {
                    let said = message.get_payload_bytes();
                    if !said.is_empty() {
                        self.turns.pass_on(said);
                    } else if let Some(topic) = self.topics().by_channel.get_mut(message.get_channel_name()) {
                        topic.ring();
                    }
                }
            }
        }
        std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
    }

    /// Keeps the subscriptions as the listeners want them.
    async fn follow(&self, mut sink: Sink) -> Result<(), RedisError> {
        // An aborted task may have noted something of its own connection since.
        self.topics().interrupt();
        self.join_later(|_| true);
        let mut warned = false;
        loop {
            let Ok(Change { join, leave }) = tokio::time::timeout(TRY_EVERY, self.change()).await else {
                if self.topics().by_channel.is_empty() {
                    return Ok(());
                }
                self.dial.answered(sink.ping()).await?;
                // The listeners that are still there were not redirected to another node: the slot may be back. Or the
                // user may listen by now.
                self.join_later(|topic| topic.state == SubscriptionState::Ended);
                continue;
            };
            if !leave.is_empty() {
                self.dial.answered(sink.leave(&leave)).await?;
                let mut topics = self.topics();
                for channel in &leave {
                    topics.subscribed.remove(channel);
                }
            }
            if !join.is_empty() {
                self.topics().subscribed.extend(join.iter().cloned());
                for Refused { channel, why } in self.dial.answered(sink.join(&join)).await? {
                    self.ended(&channel);
                    if Trouble::of(&why) == Trouble::Forbidden && !std::mem::replace(&mut warned, true) {
                        let server = self.dial.server_name();
                        let error = server.explain(why);
                        tracing::warn!(server = %server.address, %channel, %error, "cannot subscribe to some wake-ups; their waiters poll instead");
                    }
                }
                self.confirm(&join);
            }
        }
    }

    /// Waits until the subscriptions differ from the channels of the listeners, and returns the changes.
    async fn change(&self) -> Change {
        loop {
            let change = self.topics().change();
            if !change.join.is_empty() || !change.leave.is_empty() {
                return change;
            }
            self.changed.notified().await;
        }
    }

    /// Notes that the server has confirmed these, except those that have ended. From now on, none of their messages is
    /// missed.
    fn confirm(&self, channels: &[Arc<str>]) {
        let mut topics = self.topics();
        let Topics { by_channel, subscribed, .. } = &mut *topics;
        for channel in channels.iter().filter(|channel| subscribed.contains(*channel)) {
            if let Some(topic) = by_channel.get_mut(channel) {
                topic.enter(SubscriptionState::Live);
            }
        }
    }

    /// Notes that the server sends nothing more on this channel.
    fn ended(&self, channel: &str) {
        let mut topics = self.topics();
        topics.subscribed.remove(channel);
        if let Some(topic) = topics.by_channel.get_mut(channel) {
            topic.enter(SubscriptionState::Ended);
        }
    }

    /// Treats these topics as newly joined.
    fn join_later(&self, which: impl Fn(&Topic) -> bool) {
        let mut topics = self.topics();
        let Topics { by_channel, changes, .. } = &mut *topics;
        let joined = by_channel.iter().filter(|(_, topic)| which(topic));
        changes.extend(joined.map(|(channel, _)| Arc::clone(channel)));
    }
}

impl Topics {
    /// Notes that there is no connection. The next one begins with all channels that have listeners.
    fn interrupt(&mut self) {
        self.subscribed.clear();
        self.changes.clear();
        for topic in self.by_channel.values_mut() {
            topic.state = SubscriptionState::Wanted;
        }
    }

    /// Works out the channels to join and leave. A channel that was left and joined again meanwhile is still
    /// subscribed.
    fn change(&mut self) -> Change {
        let (mut join, mut leave) = (HashSet::new(), HashSet::new());
        for channel in std::mem::take(&mut self.changes) {
            match (self.by_channel.get_mut(&channel), self.subscribed.contains(&channel)) {
                // It may be listed twice.
                (Some(topic), true) if topic.state == SubscriptionState::Live => {}
                (Some(topic), true) => topic.enter(SubscriptionState::Live),
                (Some(_), false) => drop(join.insert(channel)),
                (None, true) => drop(leave.insert(channel)),
                (None, false) => {}
            }
        }
        Change { join: join.into_iter().collect(), leave: leave.into_iter().collect() }
    }
}

impl Topic {
    fn enter(&mut self, state: SubscriptionState) {
        self.state = state;
        self.ring();
    }

    fn ring(&mut self) {
        self.rings += 1;
        self.bell.notify_waiters();
    }
}

/// Channels to join and to leave.
struct Change {
    join: Vec<Arc<str>>,
    leave: Vec<Arc<str>>,
}
