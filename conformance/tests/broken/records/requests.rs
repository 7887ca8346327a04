//! The requests to a record store with one flaw.

use super::{Client, HOP, PAGE, RecordFlaw, Request};
use std::{ops::Bound, time::Duration};
use tenure_conformance::async_trait;
use tenure_core::{
    StoreError,
    record::{RecordStore, StoreTime, Stored},
};
use tokio::time::{Instant, sleep, timeout};

type Listed = Vec<(String, Stored<u64>)>;

#[async_trait]
impl RecordStore for Client {
    /// The revision that wrote the text; 0 if there is none.
    type Version = u64;

    fn store(&self) -> &'static str {
        "broken records"
    }

    async fn read(&self, key: &str) -> Result<Stored<u64>, StoreError> {
        let cached = self.cache.lock().unwrap().get(key).cloned();
        if let (RecordFlaw::ReadsFromCache, Some((read, stored))) = (self.flaw, cached)
            && read.elapsed() < HOP * 20
        {
            return Ok(stored);
        }
        let absent = Stored { text: None, version: 0, now: self.now() };
        let stored = self.carry(Request::Read, async { self.look(key) }, absent).await?;
        self.cache.lock().unwrap().insert(key.to_owned(), (Instant::now(), stored.clone()));
        Ok(stored)
    }

    async fn swap(&self, key: &str, from: &u64, to: Option<&str>) -> Result<bool, StoreError> {
        let swap = || self.carry(Request::Swap, self.carry_out(key, *from, to), false);
        if self.flaw != RecordFlaw::SendsSwapsAgain {
            return swap().await;
        }
        for _ in 0..3 {
            if let Ok(answer) = timeout(HOP * 200, swap()).await {
                return answer;
            }
        }
        Err(StoreError::unavailable("no answer, again and again"))
    }

    async fn list(&self, prefix: &str) -> Result<Listed, StoreError> {
        self.carry(Request::List, self.pages(prefix), Vec::new()).await
    }

    async fn changed(&self, key: &str, from: &u64, at_most: Duration) -> Result<(), StoreError> {
        if self.flaw == RecordFlaw::ReturnsAtOnce {
            sleep(HOP).await;
            return Ok(());
        }
        let history = self.server.history.lock().unwrap().contains(key);
        if self.flaw == RecordFlaw::WatchesFromBeginning && *from == 0 && history {
            return Ok(());
        }
        let mut from = *from;
        let mut revision = self.server.revision.subscribe();
        if self.flaw == RecordFlaw::WatchesFromNow {
            from = self.look(key).version;
        }
        let change = async {
            loop {
                let now = self.look(key).version;
                if now != from && (self.flaw != RecordFlaw::WatchesWritesOnly || now > 0) {
                    return;
                }
                if self.flaw == RecordFlaw::WatchesNothing || revision.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        if self.flaw == RecordFlaw::WaitsForEver {
            change.await;
        } else {
            // It is no error if nothing changes in time.
            let _ = timeout(at_most, change).await;
        }
        Ok(())
    }

    fn tells_of_changes(&self) -> bool {
        true
    }
}

impl Client {
    async fn carry_out(&self, key: &str, from: u64, to: Option<&str>) -> bool {
        let now = self.look(key);
        let is_current = match self.flaw {
            RecordFlaw::SwapsAnyVersion => true,
            RecordFlaw::RemovesAnyVersion if to.is_none() => true,
            RecordFlaw::CreatesOverText if from == 0 => true,
            RecordFlaw::WritesOverAbsence if now.text.is_none() => true,
            RecordFlaw::ComparesTextsWithoutCase if from + 1 == now.version => {
                // The text of the version before looks like this one: only case tells them apart here.
                now.text.as_ref().is_some_and(|text| text.eq_ignore_ascii_case("job"))
            }
            _ => from == now.version,
        };
        if !is_current {
            return self.flaw == RecordFlaw::SaysTrueAndWritesNothing;
        }
        if self.flaw == RecordFlaw::LooksThenSwaps {
            sleep(HOP).await;
        }
        self.write(key, to);
        self.flaw != RecordFlaw::SaysFalseAndWrites
    }

    /// All pages of a list.
    async fn pages(&self, prefix: &str) -> Listed {
        let mut listed: Listed = self.matching(prefix);
        match self.flaw {
            RecordFlaw::ListsFirstPage => listed.truncate(PAGE),
            RecordFlaw::ListsLastOfPageTwice if listed.len() > PAGE => {
                listed.insert(PAGE, listed[PAGE - 1].clone());
            }
            RecordFlaw::ListsPagesOfSeveralRevisions => {
                listed.truncate(PAGE);
                while let Some((last, _)) = listed.last().cloned() {
                    sleep(HOP).await;
                    let rest = self.matching(prefix).into_iter().filter(|(key, _)| *key > last);
                    let page: Listed = rest.take(PAGE).collect();
                    if page.is_empty() {
                        break;
                    }
                    listed.extend(page);
                }
            }
            _ => {}
        }
        listed
    }

    /// The keys that begin with the prefix now.
    fn matching(&self, prefix: &str) -> Listed {
        let now = self.now();
        let now = match self.flaw {
            RecordFlaw::ListsWithAnotherClock => {
                StoreTime::from_micros(now.as_micros() / 1_000_000 * 1_000_000)
            }
            _ => now,
        };
        let (entries, revision) = (self.entries(), *self.server.revision.borrow());
        let matches = |key: &str| match self.flaw {
            RecordFlaw::ListsByPattern => is_like(key, prefix),
            RecordFlaw::ListsWithoutCase => key.to_lowercase().starts_with(&prefix.to_lowercase()),
            _ => key.starts_with(prefix),
        };
        let stored = |(key, (text, written)): (&String, &(String, u64))| {
            let version = if self.flaw == RecordFlaw::ListsVersionsOfTheList { revision } else { *written };
            (key.clone(), Stored { text: Some(text.clone()), version, now })
        };
        let all = entries.range::<str, _>((Bound::Unbounded, Bound::Unbounded));
        all.filter(|(key, _)| matches(key)).map(stored).collect()
    }
}

/// Whether the key begins with a pattern in which `_` is any one character.
fn is_like(key: &str, pattern: &str) -> bool {
    let mut key = key.chars();
    pattern.chars().all(|wanted| key.next().is_some_and(|found| wanted == '_' || wanted == found))
}
