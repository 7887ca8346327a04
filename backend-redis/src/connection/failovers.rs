//! Failovers, as the sentinels announce them.
//!
//! A deposed master goes on answering for ten seconds or more, until a sentinel makes it a replica and ends its
//! connections. Meanwhile it grants names that the new master grants, too. So a client listens to all sentinels, as the
//! [guidelines](https://redis.io/docs/latest/develop/reference/sentinel-clients/) propose, and leaves the old master when
//! the first of them announces the new one.

use super::{
    address::Address,
    connecting::{Pauses, TRY_EVERY, in_time},
    dial::Dial,
    errors::words,
    pubsub::Heard,
    sentinel::Sentinels,
};
use futures_util::{StreamExt, future::join_all};
use redis::{ErrorKind, Msg, RedisError};
use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tenure_core::Background;
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

/// Listens to the sentinels while this client makes requests, until it is stopped or dropped.
pub(crate) struct Failovers {
    listener: Arc<Listener>,
    background: Background,
    task: Mutex<Option<AbortHandle>>,
}

struct Listener {
    sentinels: Arc<Sentinels>,
    dial: Dial,
}

impl Failovers {
    /// `None` if there are no sentinels.
    pub(crate) fn of(dial: &Dial, background: &Background) -> Option<Self> {
        let sentinels = Arc::clone(dial.sentinels()?);
        let listener = Arc::new(Listener { sentinels, dial: dial.clone() });
        Some(Self { listener, background: background.clone(), task: Mutex::default() })
    }

    /// Begins to listen, unless it does so already.
    pub(crate) fn listen(&self) {
        let mut task = self.task();
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            *task = Some(self.background.spawn(Arc::clone(&self.listener).run()).abort_handle());
        }
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Failovers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Listener {
    async fn run(self: Arc<Self>) {
        join_all(self.sentinels.addresses().iter().map(|sentinel| self.listen_to(sentinel))).await;
    }

    /// Reconnects forever. A sentinel that cannot be followed is logged once.
    async fn listen_to(&self, sentinel: &Address) {
        let (mut pauses, mut warned) = (Pauses::default(), false);
        loop {
            let (begun, mut lasted) = (Instant::now(), false);
            let Err(error) = self.hear(sentinel, &mut lasted).await;
            warned &= !lasted;
            if !std::mem::replace(&mut warned, true) {
                tracing::warn!(%sentinel, error = words(&error), "cannot follow failovers; trying again");
            }
            sleep(pauses.after(begun.elapsed())).await;
        }
    }

    /// Follows a sentinel's announcements until its connection breaks. Sets `lasted` once it has answered a ping.
    async fn hear(&self, sentinel: &Address, lasted: &mut bool) -> Result<Infallible, RedisError> {
        let limit = self.dial.connect_timeout;
        let (mut sink, mut messages) = in_time(limit, self.sentinels.subscribe(sentinel)).await?;
        // An earlier announcement may have been missed.
        let (named, epoch) = self.sentinels.named_by(sentinel, limit).await?;
        if self.sentinels.leaves_for(&named) {
            self.dial.commands().await?;
            if self.sentinels.leaves_for(&named) && self.sentinels.is_newer(epoch) {
                return Err(outdated(&named));
            }
        }
        loop {
            match timeout(TRY_EVERY, messages.next()).await {
                Err(_) => {
                    self.dial.answered(sink.ping()).await?;
                    *lasted = true;
                }
                Ok(None) => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                Ok(Some(Heard::Message(message))) => self.follow(&message).await?,
                Ok(Some(Heard::Ended(_))) => {}
            }
        }
    }

    /// Connects to the master that a message announces, which moves all connections of this client there.
    async fn follow(&self, message: &Msg) -> Result<(), RedisError> {
        let said: String = message.get_payload()?;
        let Some(named) = self.sentinels.announced(&said).filter(|named| self.sentinels.leaves_for(named))
        else {
            return Ok(());
        };
        self.dial.commands().await?;
        // If others that have not heard of it answered first, connecting again asks this sentinel, too.
        if self.sentinels.leaves_for(&named) { Err(outdated(&named)) } else { Ok(()) }
    }
}

fn outdated(named: &Address) -> RedisError {
    (ErrorKind::Io, "the sentinels that answered do not know the new master yet", named.to_string()).into()
}
