//! The usual lock in a key-value bucket: a program creates an entry, which fails if there is one, and deletes it.

use crate::beside_recipe::Recipe;
use async_nats::jetstream::{
    self,
    kv::{CreateErrorKind, Operation, Store},
    stream,
};
use futures_util::StreamExt;
use std::path::Path;
use tenure_core::Locks;
use tenure_nats::{NatsBackend, NatsOptions};

/// A bucket.
pub(crate) struct Nats(Store);

impl Recipe for Nats {
    const STORE: &'static str = "nats";
    const ROUNDS: u32 = 60;
    const CYCLES: u32 = 100;

    fn server([port, _]: [u16; 2], directory: &Path) -> Vec<String> {
        let (port, data) = (port.to_string(), directory.display().to_string());
        ["nats-server", "--jetstream", "--addr", "127.0.0.1", "--port", &port, "--store_dir", &data]
            .map(str::to_owned)
            .to_vec()
    }

    async fn locks(address: &str) -> Locks {
        Locks::new(NatsBackend::connect(NatsOptions::new([address], "tenure")).await.expect("a server"))
    }

    async fn connect(address: &str) -> Option<Self> {
        let context = jetstream::new(async_nats::connect(address).await.ok()?);
        // The client cannot read what NATS 2.9 answers to `create_key_value`.
        let config = stream::Config {
            name: "KV_bare".to_owned(),
            subjects: vec!["$KV.bare.>".to_owned()],
            max_messages_per_subject: 1,
            discard: stream::DiscardPolicy::New,
            allow_rollup: true,
            allow_direct: true,
            ..stream::Config::default()
        };
        context.get_or_create_stream(config).await.ok()?;
        context.get_key_value("bare").await.ok().map(Self)
    }

    async fn acquire(&mut self, lock: &str) -> String {
        loop {
            match self.0.create(lock, "held".into()).await {
                Ok(_) => return lock.to_owned(),
                Err(error) => assert_eq!(error.kind(), CreateErrorKind::AlreadyExists),
            }
            let mut changes = self.0.watch_with_history(lock).await.expect("a watch");
            while changes.next().await.expect("a change").expect("an entry").operation == Operation::Put {}
        }
    }

    async fn release(&mut self, lock: &str) {
        self.0.delete(lock).await.expect("an answer");
    }
}
