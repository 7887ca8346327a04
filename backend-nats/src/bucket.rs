//! The bucket as a store of records.

use crate::{
    errors::{NO_BUCKET, Refusal, is_outdated, refused, unanswered},
    keys::Keys,
    link::Link,
    options::Checked,
};
use async_nats::{
    HeaderMap, HeaderValue,
    client::{Request, RequestErrorKind},
    header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    jetstream::{
        consumer::push::OrderedConfig,
        context::{CreateStreamErrorKind, GetStreamErrorKind},
        message::StreamMessage,
        publish::PublishAck,
        response::Response,
        stream::{self, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, StorageType},
    },
};
use futures_util::StreamExt;
use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tenure_core::{
    Background, Moment, StoreError, async_trait,
    record::{DatedClock, RecordStore, StoreTime, Stored},
};
use tokio::time::timeout;

/// From this version on, an update of a replicated revision is carried out once.
const ATOMIC: (i64, i64, i64) = (2, 9, 21);
/// Servers before this version crash if a client reads a stream that another is creating: it is listed before it has a
/// store.
const SAFE: (i64, i64, i64) = (2, 9, 15);
/// The header of a removal, as in other programs' buckets.
const OPERATION: &str = "KV-Operation";
/// The longest usual time to write a revision, or to write a probe and read it. Slower ones give no reading.
const ROUND_TRIP: Duration = Duration::from_millis(250);
/// How many revisions of a list are read at once.
const CHUNK: usize = 1000;
/// How often a list may find later revisions at its end.
const ENDS: usize = 1000;
/// How soon a waiter looks again for a revision that was published; later pauses are up to eight times as long.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A key-value bucket.
pub(crate) struct Bucket {
    options: Checked,
    keys: Keys,
    clock: DatedClock<u64>,
    /// On the runtime of the background, which ends when all clients are closed; or the program's own.
    link: Mutex<Option<Link>>,
    background: Background,
}

impl Bucket {
    pub(crate) fn new(options: Checked, link: Option<Link>) -> Self {
        let keys = Keys::below(&options.bucket, &options.values.prefix);
        let clock = DatedClock::new(Duration::from_micros(1), options.values.clock_skew, ROUND_TRIP);
        let link = Mutex::new(link);
        Self { options, keys, clock, link, background: Background::new() }
    }

    /// Checks that the bucket is there and fit for locks. Creates it if there is none.
    pub(crate) async fn open(&self) -> Result<(), StoreError> {
        let link = self.link().await?;
        match link.ask(link.context.get_stream(self.stream())).await? {
            Ok(stream) => self.check(&link, &stream.cached_info().config),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(refusal) if refusal.error_code() == NO_BUCKET => {
                    self.create(&link).await
                }
                GetStreamErrorKind::JetStream(refusal) => Err(refused(refusal)),
                _ => Err(unanswered(error, None)),
            },
        }
    }

    /// As other programs create key-value buckets, but without a history.
    async fn create(&self, link: &Link) -> Result<(), StoreError> {
        let num_replicas = usize::try_from(self.options.values.replicas).unwrap_or(1);
        atomic(link, num_replicas)?;
        let (major, minor, patch) = SAFE;
        if !link.client.is_server_compatible(major, minor, patch) {
            let version = link.client.server_info().version;
            tracing::warn!(lock.store = %self.options.store, %version, "this NATS may crash if clients read a bucket while one creates it; create it before they start, or use 2.9.15");
        }
        let config = stream::Config {
            name: self.stream(),
            description: Some("locks of tenure".to_owned()),
            subjects: vec![format!("$KV.{}.>", self.options.bucket)],
            num_replicas,
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            deny_delete: true,
            allow_rollup: true,
            allow_direct: true,
            ..stream::Config::default()
        };
        let Err(error) = link.ask(link.context.create_stream(config)).await? else { return Ok(()) };
        Err(match error.kind() {
            CreateStreamErrorKind::JetStream(refusal) => refused(refusal),
            _ => unanswered(error, None),
        })
    }

    fn check(&self, link: &Link, config: &stream::Config) -> Result<(), StoreError> {
        let bucket = &self.options.bucket;
        atomic(link, config.num_replicas)?;
        if !config.max_age.is_zero() {
            return Err(StoreError::failed(format!(
                "bucket {bucket:?} has a TTL ({:?}), which removes held locks: use a bucket without a TTL",
                config.max_age
            )));
        }
        let is_limited = config.max_bytes > 0 || config.max_messages > 0;
        let unfit = if config.discard == DiscardPolicy::Old && is_limited {
            "discards old entries when it is full, which removes held locks"
        } else if config.retention != RetentionPolicy::Limits || config.no_ack || config.mirror.is_some() {
            "is a queue or a mirror, or confirms no write"
        } else {
            ""
        };
        if !unfit.is_empty() {
            return Err(StoreError::failed(format!("bucket {bucket:?} {unfit}: use a key-value bucket")));
        }
        if config.storage == StorageType::Memory {
            tracing::warn!(lock.store = %self.options.store, "the bucket is kept in memory: a restart of its servers forgets all locks");
        }
        Ok(())
    }

    fn stream(&self) -> String {
        format!("KV_{}", self.options.bucket)
    }

    /// The connection, which is made by the first request.
    async fn link(&self) -> Result<Link, StoreError> {
        let current = || {
            let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            link.clone().filter(|link| !link.has_ended())
        };
        if let Some(link) = current() {
            return Ok(link);
        }
        let new = Link::connect(&self.options, &self.background.handle()).await?;
        // Another request may have connected meanwhile.
        Ok(current().unwrap_or_else(|| {
            let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            link.insert(new).clone()
        }))
    }

    /// The last revision of this subject, if there is one.
    async fn last(&self, link: &Link, subject: &str) -> Result<Option<StreamMessage>, StoreError> {
        let link = &link.half_as_patient();
        let stream = link.context.get_stream_no_info(self.stream()).await.map_err(StoreError::failed)?;
        // The stream's leader answers, and no other replica, which may lag behind.
        let read = || link.ask(stream.get_last_raw_message_by_subject(subject));
        let answer = match read().await {
            Err(error) if error.is_unavailable() => read().await?,
            answer => answer?,
        };
        let Err(error) = answer else { return Ok(answer.ok()) };
        match error.kind() {
            LastRawMessageErrorKind::NoMessageFound => Ok(None),
            LastRawMessageErrorKind::JetStream(refusal) if refusal.error_code() == NO_BUCKET => {
                Err(self.missing().await)
            }
            LastRawMessageErrorKind::JetStream(refusal) => Err(refused(refusal)),
            _ => Err(unanswered(error, None)),
        }
    }

    async fn get(&self, key: &str) -> Result<(Option<String>, u64), StoreError> {
        let link = self.link().await?;
        let Some(message) = self.last(&link, &self.keys.subject(key)).await? else { return Ok((None, 0)) };
        let (version, date) = (message.sequence, date(&message));
        self.clock.saw(&version, date);
        if is_removal(&message.headers) {
            return Ok((None, version));
        }
        let text = String::from_utf8(message.payload.to_vec()).map_err(StoreError::failed)?;
        Ok((Some(text), version))
    }

    /// Writes a revision, if the last one is the expected one. Returns its number.
    async fn put(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: String,
    ) -> Result<Result<u64, Refusal>, StoreError> {
        let link = self.link().await?;
        // `Context::publish` would keep requests whose callers are gone.
        let request = Request::new().headers(headers).payload(payload.into()).timeout(None);
        let message = match link.ask(link.client.send_request(subject, request)).await? {
            Ok(message) => message,
            Err(error) if error.kind() == RequestErrorKind::NoResponders => return Err(self.missing().await),
            Err(error) => return Err(unanswered(error, None)),
        };
        Ok(match serde_json::from_slice(&message.payload).map_err(StoreError::failed)? {
            Response::Ok(PublishAck { sequence, .. }) => Ok(sequence),
            Response::Err { error } => Err(error),
        })
    }

    async fn probe(&self) -> Result<StoreTime, StoreError> {
        let (link, subject) = (self.link().await?, self.keys.probe());
        let written = self.put(subject.clone(), HeaderMap::new(), String::new()).await?.map_err(refused)?;
        // Any later probe of another client does as well. A deposed leader would answer with an earlier one.
        let last = self.last(&link, &subject).await?.filter(|probe| written <= probe.sequence);
        last.as_ref()
            .map(date)
            .ok_or_else(|| StoreError::unavailable("the server does not know its last write"))
    }

    /// Every key below the prefix that has not been removed.
    ///
    /// Revisions come in their order, and a key's last one is newer than all before. So the keys are as they were at one
    /// instant once the last revision of all has come, and is still the last. Each answer has its own time limit.
    async fn all(&self) -> Result<HashMap<String, (String, u64)>, StoreError> {
        let link = self.link().await?.half_as_patient();
        match self.walk(&link).await {
            Err(error) if error.is_unavailable() => self.walk(&link).await,
            found => found,
        }
    }

    async fn walk(&self, link: &Link) -> Result<HashMap<String, (String, u64)>, StoreError> {
        let mut found = HashMap::new();
        let Some(mut last) = self.last(link, &self.keys.all()).await? else { return Ok(found) };
        let stream = link.context.get_stream_no_info(self.stream()).await.map_err(StoreError::failed)?;
        let config = OrderedConfig {
            deliver_subject: link.client.new_inbox(),
            filter_subject: self.keys.all(),
            ..OrderedConfig::default()
        };
        let consumer = link.ask(stream.create_consumer(config)).await?;
        let consumer = consumer.map_err(|error| unanswered(error, None))?;
        let messages = link.ask(consumer.messages()).await?.map_err(|error| unanswered(error, None))?;
        // Waits once for all that have come meanwhile.
        let mut messages = messages.ready_chunks(CHUNK);
        let (mut chunk, mut ends) = (Vec::new().into_iter(), 0);
        while ends < ENDS {
            let Some(message) = chunk.next() else {
                let next = async { Ok::<_, Infallible>(messages.next().await) };
                let Ok(next) = link.ask(next).await?;
                let Some(next) = next else {
                    return Err(StoreError::unavailable("the server ended the list early"));
                };
                chunk = next.into_iter();
                continue;
            };
            let message = message.map_err(|error| unanswered(error, None))?;
            let (revision, date, pending) = match message.info() {
                Ok(info) => (info.stream_sequence, micros(info.published), info.pending),
                Err(error) => return Err(unanswered(error, None)),
            };
            self.clock.saw(&revision, date);
            if let Some(key) = self.keys.key(&message.subject) {
                if message.headers.as_ref().is_some_and(is_removal) {
                    found.remove(&key);
                } else {
                    // An unreadable record hides no other.
                    let text = String::from_utf8_lossy(&message.payload).into_owned();
                    found.insert(key, (text, revision));
                }
            }
            if last.sequence <= revision {
                // The server has seen no later one.
                if pending == 0 {
                    return Ok(found);
                }
                match self.last(link, &self.keys.all()).await? {
                    Some(later) if revision < later.sequence => (last, ends) = (later, ends + 1),
                    _ => return Ok(found),
                }
            }
        }
        Err(StoreError::unavailable("clients write faster than the list can be read"))
    }

    /// Creates the bucket again, which was lost with its servers' data.
    async fn missing(&self) -> StoreError {
        if let Err(error) = self.open().await {
            return error;
        }
        // Its revisions may begin again.
        self.clock.forget();
        let bucket = &self.options.bucket;
        StoreError::unavailable(format!("bucket {bucket:?} exists, but was missing or had no leader"))
    }
}

/// Refuses replicas on a server that may carry out several updates of one revision:
/// <https://github.com/nats-io/nats-server/issues/4320>.
fn atomic(link: &Link, replicas: usize) -> Result<(), StoreError> {
    let (major, minor, patch) = ATOMIC;
    if replicas <= 1 || link.client.is_server_compatible(major, minor, patch) {
        return Ok(());
    }
    let version = link.client.server_info().version;
    Err(StoreError::failed(format!(
        "NATS {version} may grant a lock in a bucket with {replicas} replicas to two clients: use \
         {major}.{minor}.{patch} or later, or one replica"
    )))
}

fn date(message: &StreamMessage) -> StoreTime {
    micros(message.time)
}

/// Takes either date type of the client library.
fn micros(date: async_nats::datetime::DateTime) -> StoreTime {
    StoreTime::from(std::time::SystemTime::from(date))
}

/// Whether a revision is that of a removal.
fn is_removal(headers: &HeaderMap) -> bool {
    headers.get(OPERATION).is_some()
}

#[async_trait]
impl RecordStore for Bucket {
    /// The number of a revision; 0 if there is none.
    type Version = u64;

    fn store(&self) -> &str {
        &self.options.store
    }

    async fn read(&self, key: &str) -> Result<Stored<u64>, StoreError> {
        let ((text, version), now) = self.clock.timed(|| self.get(key), || self.probe()).await?;
        Ok(Stored { text, version, now })
    }

    async fn swap(&self, key: &str, from: &u64, to: Option<&str>) -> Result<bool, StoreError> {
        let sent = Moment::now();
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(*from));
        if to.is_none() {
            headers.insert(OPERATION, "DEL");
        }
        match self.put(self.keys.subject(key), headers, to.unwrap_or_default().to_owned()).await? {
            Ok(version) => {
                self.clock.wrote(version, sent);
                Ok(true)
            }
            Err(refusal) if is_outdated(&refusal) => Ok(false),
            Err(refusal) => Err(refused(refusal)),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Stored<u64>)>, StoreError> {
        let all = self.all().await?;
        // Afterwards, because a long list is that of its end; and a new client reads it once.
        let ((), now) = self.clock.timed(|| async { Ok(()) }, || self.probe()).await?;
        let below = all.into_iter().filter(|(key, _)| key.starts_with(prefix));
        Ok(below.map(|(key, (text, version))| (key, Stored { text: Some(text), version, now })).collect())
    }

    async fn changed(&self, key: &str, from: &u64, at_most: Duration) -> Result<(), StoreError> {
        let (link, subject) = (self.link().await?, self.keys.subject(key));
        let subscription = link.ask(link.client.subscribe(subject.clone())).await?;
        let mut published = subscription.map_err(|error| unanswered(error, None))?;
        let is_last = async |link: &Link| {
            let last = self.last(link, &subject).await?;
            Ok::<_, StoreError>(last.map_or(0, |message| message.sequence) == *from)
        };
        // The server has the subscription before this request, so it publishes each later revision.
        if !is_last(&link).await? || timeout(at_most, published.next()).await.is_err() {
            return Ok(());
        }
        // A revision is published before it is stored, or refused.
        let looks = async {
            let mut pause = Duration::ZERO;
            while is_last(&link).await? {
                pause = match timeout(pause, published.next()).await {
                    Ok(_another) => Duration::ZERO,
                    Err(_) => (pause * 2).clamp(LOOK_AGAIN, LOOK_AGAIN * 8),
                };
            }
            Ok(())
        };
        timeout(ROUND_TRIP, looks).await.unwrap_or(Ok(()))
    }

    fn tells_of_changes(&self) -> bool {
        true
    }

    fn margin(&self) -> Duration {
        self.clock.margin()
    }

    fn read_clock_anew(&self) {
        self.clock.forget();
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}
