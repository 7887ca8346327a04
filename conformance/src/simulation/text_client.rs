//! A client of the texts: a store of records.

use super::{
    data::Data,
    network::Connection,
    texts::{Dated, Dates, Table},
};
use crate::async_trait;
use std::{sync::Arc, time::Duration};
use tenure_core::{
    Moment, StoreError,
    record::{DatedClock, RecordStore, StoreTime, Stored},
};

/// The key that a client writes to learn its date. It is in no namespace.
const CLOCK_KEY: &str = "clock";

/// A client of the texts.
pub(super) struct TextClient {
    data: Arc<Data>,
    dates: Dates,
    namespace: String,
    connection: Connection,
    clock: DatedClock<u64>,
}

impl TextClient {
    pub(super) fn new(
        data: Arc<Data>,
        (dates, more): (Dates, Duration),
        namespace: &str,
        connection: Connection,
    ) -> Self {
        let (clock, namespace) = (dates.clock(more), format!("{namespace}:"));
        Self { data, dates, namespace, connection, clock }
    }

    /// Carries a request to the table, with the time at which it arrives.
    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Table, StoreTime) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let data = Arc::clone(&self.data);
        self.connection.carry(async move { request(&mut data.texts.table(), data.now()) }).await
    }

    async fn get(&self, key: &str) -> Result<(Option<String>, u64), StoreError> {
        let key = format!("{}{key}", self.namespace);
        let Some(found) = self.ask(move |table, _| table.texts.get(&key).cloned()).await? else {
            return Ok((None, 0));
        };
        self.clock.saw(&found.version, found.date);
        Ok((Some(found.text), found.version))
    }

    async fn clock_date(&self) -> Result<StoreTime, StoreError> {
        let dates = self.dates;
        self.ask(move |table, now| _ = table.write(CLOCK_KEY.to_owned(), String::new(), now, dates)).await?;
        let found = self.ask(|table, _| table.texts.get(CLOCK_KEY).map(|dated| dated.date)).await?;
        found.ok_or_else(|| StoreError::unavailable("the key of the clock is gone"))
    }
}

#[async_trait]
impl RecordStore for TextClient {
    type Version = u64;

    fn store(&self) -> &'static str {
        "simulation"
    }

    async fn read(&self, key: &str) -> Result<Stored<u64>, StoreError> {
        let ((text, version), now) = self.clock.timed(|| self.get(key), || self.clock_date()).await?;
        Ok(Stored { text, version, now })
    }

    async fn swap(&self, key: &str, from: &u64, to: Option<&str>) -> Result<bool, StoreError> {
        let (sent, key) = (Moment::now(), format!("{}{key}", self.namespace));
        let (from, to) = (*from, to.map(str::to_owned));
        let dates = self.dates;
        let version = self.ask(move |table, now| table.swap(key, from, to, now, dates)).await?;
        if let Some(version) = version {
            self.clock.wrote(version, sent);
        }
        Ok(version.is_some())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Stored<u64>)>, StoreError> {
        let (prefix, namespace) = (format!("{}{prefix}", self.namespace), self.namespace.len());
        let list = || async {
            let prefix = prefix.clone();
            let list = move |table: &mut Table, _| {
                let listed = table.texts.iter().filter(|(key, _)| key.starts_with(&prefix));
                listed.map(|(key, dated)| (key[namespace..].to_owned(), dated.clone())).collect::<Vec<_>>()
            };
            let listed = self.ask(list).await?;
            for (_, dated) in &listed {
                self.clock.saw(&dated.version, dated.date);
            }
            Ok(listed)
        };
        let (listed, now) = self.clock.timed(list, || self.clock_date()).await?;
        let stored = |Dated { text, version, .. }| Stored { text: Some(text), version, now };
        Ok(listed.into_iter().map(|(key, dated)| (key, stored(dated))).collect())
    }

    fn margin(&self) -> Duration {
        self.clock.margin()
    }

    fn read_clock_anew(&self) {
        self.clock.forget();
    }
}
