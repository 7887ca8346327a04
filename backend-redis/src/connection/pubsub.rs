//! A connection for published messages: of all nodes, or of a shard of a Cluster.

use super::errors::Trouble;
use crate::requests::{keys, replies::text};
use futures_util::{
    StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, Msg, ProtocolVersion, PushInfo, PushKind, RedisError, Value,
    aio::{MultiplexedConnection, PubSubSink},
};
use std::sync::Arc;
use tokio::sync::mpsc;

/// A server's push.
pub(crate) enum Heard {
    Message(Msg),
    /// A subscription has ended: this client has left the channel, or another node now keeps its slot.
    Ended(String),
}

/// A channel to which the server does not subscribe this client.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) channel: Arc<str>,
    pub(crate) why: RedisError,
}

/// The sending side of a connection, for subscribing and unsubscribing.
pub(crate) enum Sink {
    /// Each message reaches every node of a Cluster.
    Everywhere(PubSubSink),
    /// Messages about a lock reach only the node that keeps its slot. Uses RESP3: the `redis` crate supports sharded
    /// subscriptions only there.
    Shard(MultiplexedConnection),
}

/// Opens a connection: a special one for a shard's channels, or the usual one.
pub(crate) async fn open(
    client: &Client,
    in_shard: bool,
) -> Result<(Sink, BoxStream<'static, Heard>), RedisError> {
    if !in_shard {
        let (sink, messages) = client.get_async_pubsub().await?.split();
        return Ok((Sink::Everywhere(sink), messages.map(Heard::Message).boxed()));
    }
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let (sender, pushed) = mpsc::unbounded_channel();
    // The caller has its own timeout.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connection = Client::open(info.set_redis_settings(settings))?
        .get_multiplexed_async_connection_with_config(&config.set_push_sender(sender))
        .await?;
    Ok((Sink::Shard(connection), heard(pushed).boxed()))
}

/// Whether the server is too old for sharded channels: before 7.0.
pub(crate) fn knows_no_shards(error: &RedisError) -> bool {
    let unknown = |detail: &str| detail.starts_with("unknown command");
    error.kind() == ErrorKind::RESP3NotSupported || error.detail().is_some_and(unknown)
}

/// The server's pushes, until the connection ends.
fn heard(pushed: mpsc::UnboundedReceiver<PushInfo>) -> impl stream::Stream<Item = Heard> {
    stream::unfold(pushed, |mut pushed| async {
        loop {
            let push = pushed.recv().await?;
            let heard = match push.kind {
                PushKind::Disconnection => return None,
                PushKind::SUnsubscribe | PushKind::Unsubscribe => {
                    push.data.first().and_then(text).map(|channel| Heard::Ended(channel.to_owned()))
                }
                _ => Msg::from_push_info(push).map(Heard::Message),
            };
            if let Some(heard) = heard {
                return Some((heard, pushed));
            }
        }
    })
}

impl Sink {
    /// Subscribes to channels. Returns those that the server refused.
    pub(crate) async fn join(&mut self, channels: &[Arc<str>]) -> Result<Vec<Refused>, RedisError> {
        match self {
            Self::Everywhere(sink) => {
                // One command for each channel: a command for several is refused as a whole because of one.
                let requests = channels.iter().map(|channel| {
                    let mut sink = sink.clone();
                    async move { sink.subscribe(&**channel).await }
                });
                refusals(channels, join_all(requests).await)
            }
            Self::Shard(connection) => each(connection, &JOIN, channels).await,
        }
    }

    /// Ends subscriptions.
    pub(crate) async fn leave(&mut self, channels: &[Arc<str>]) -> Result<(), RedisError> {
        match self {
            Self::Everywhere(sink) => sink.unsubscribe(names(channels)).await,
            // A channel that another node keeps has been left already.
            Self::Shard(connection) => each(connection, &LEAVE, channels).await.map(drop),
        }
    }

    pub(crate) async fn ping(&mut self) -> Result<(), RedisError> {
        match self {
            Self::Everywhere(sink) => sink.ping::<Value>().await.map(drop),
            Self::Shard(connection) => match redis::cmd("PING").query_async(connection).await? {
                Value::SimpleString(_) => Ok(()),
                _ => Err(confused()),
            },
        }
    }
}

/// The command for a shard's channel and for any other, each with the kind of its answer.
struct ChannelCommand {
    shard: (&'static str, PushKind),
    other: (&'static str, PushKind),
}

const JOIN: ChannelCommand =
    ChannelCommand { shard: ("SSUBSCRIBE", PushKind::SSubscribe), other: ("SUBSCRIBE", PushKind::Subscribe) };
const LEAVE: ChannelCommand = ChannelCommand {
    shard: ("SUNSUBSCRIBE", PushKind::SUnsubscribe),
    other: ("UNSUBSCRIBE", PushKind::Unsubscribe),
};

impl ChannelCommand {
    /// A client's inbox is in no lock's slot, so it is an ordinary channel.
    fn about(&self, channel: &str) -> &(&'static str, PushKind) {
        if keys::is_inbox(channel) { &self.other } else { &self.shard }
    }
}

/// Sends one command per channel, because one command takes channels of one slot only. Returns the channels that the
/// server refused.
///
/// The server ends a subscription by itself when its slot has moved. If a request is on its way then, the `redis` crate
/// takes that message for the answer, and from then on pairs answers with the wrong requests. So this checks the
/// answers, and gives up such a connection.
async fn each(
    connection: &mut MultiplexedConnection,
    request: &ChannelCommand,
    channels: &[Arc<str>],
) -> Result<Vec<Refused>, RedisError> {
    let mut all = redis::pipe();
    for channel in channels {
        all.cmd(request.about(channel).0).arg(&**channel);
    }
    let answers = connection.send_packed_commands(&all, 0, channels.len()).await?;
    let read = |(channel, answer): (&Arc<str>, Value)| match answer.extract_error()? {
        Value::Push { kind, data }
            if kind == request.about(channel).1 && data.first().and_then(text) == Some(channel) =>
        {
            Ok(())
        }
        _ => Err(confused()),
    };
    refusals(channels, channels.iter().zip(answers).map(read))
}

/// The channels that were refused, each by itself.
fn refusals(
    channels: &[Arc<str>],
    answers: impl IntoIterator<Item = Result<(), RedisError>>,
) -> Result<Vec<Refused>, RedisError> {
    let mut refused = Vec::new();
    for (channel, answer) in channels.iter().zip(answers) {
        match answer {
            Ok(()) => {}
            Err(why) if is_of_one(&why) => refused.push(Refused { channel: Arc::clone(channel), why }),
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

/// Whether a refusal says nothing of other channels: another node keeps this one, or the user may not listen to it.
fn is_of_one(error: &RedisError) -> bool {
    matches!(Trouble::of(error), Trouble::Cluster | Trouble::Forbidden)
}

fn confused() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "a slot moved while its node was asked about subscriptions").into()
}

fn names(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(|channel| &**channel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        net::TcpListener,
    };

    /// A server of one client that answers each command from a table, and all others with `OK`.
    async fn server(answers: &'static [(&'static str, &'static str)]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (read, mut write) = stream.split();
            let mut lines = BufReader::new(read).lines();
            // `*` and how many words, then for each its length and itself.
            while let Ok(Some(count)) = lines.next_line().await {
                let mut words = Vec::new();
                for _ in 0..count[1..].parse::<usize>().unwrap() {
                    lines.next_line().await.unwrap();
                    words.push(lines.next_line().await.unwrap().unwrap());
                }
                let command = words.join(" ");
                let said = answers.iter().find(|(begin, _)| command.starts_with(begin));
                let hello = if words[0] == "HELLO" { "%1\r\n+proto\r\n:3\r\n" } else { "+OK\r\n" };
                write.write_all(said.map_or(hello, |(_, answer)| answer).as_bytes()).await.unwrap();
            }
        });
        Client::open(format!("redis://{address}")).unwrap()
    }

    fn channels(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[tokio::test]
    async fn ended_subscription_is_not_taken_for_an_answer() {
        let client = server(&[(
            "SSUBSCRIBE b",
            ">3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n>3\r\n$10\r\nssubscribe\r\n$1\r\nb\r\n:1\r\n",
        )])
        .await;
        let (mut sink, mut heard) = open(&client, true).await.unwrap();
        let error = sink.join(&channels(&["b"])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedReturnType, "{error}");
        assert!(matches!(heard.next().await, Some(Heard::Ended(channel)) if channel == "a"));
    }

    #[tokio::test]
    async fn refused_channels_are_reported_one_by_one() {
        let client = server(&[
            ("SSUBSCRIBE a", ">3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n"),
            ("SSUBSCRIBE b", "-MOVED 7 10.0.0.1:7001\r\n"),
            ("SSUBSCRIBE c", "-NOPERM No permissions to access a channel\r\n"),
            ("SUBSCRIBE t:\u{1f}me", ">3\r\n$9\r\nsubscribe\r\n$5\r\nt:\u{1f}me\r\n:1\r\n"),
            ("PING", "+PONG\r\n"),
            ("SUNSUBSCRIBE a", "-MOVED 7 10.0.0.1:7001\r\n"),
            ("SSUBSCRIBE x", "-ERR unknown command 'SSUBSCRIBE'\r\n"),
        ])
        .await;
        let (mut sink, _heard) = open(&client, true).await.unwrap();
        let refused = sink.join(&channels(&["a", "b", "c", "t:\u{1f}me"])).await.unwrap();
        let refused = refused.iter().map(|refused| (&*refused.channel, Trouble::of(&refused.why)));
        assert_eq!(refused.collect::<Vec<_>>(), [("b", Trouble::Cluster), ("c", Trouble::Forbidden)]);
        sink.leave(&channels(&["a"])).await.unwrap();
        sink.ping().await.unwrap();
        assert!(knows_no_shards(&sink.join(&channels(&["x"])).await.unwrap_err()));
    }
}
