//! What goes to a program's logs.

use serde::Deserialize;
use std::{
    io,
    sync::{Arc, Mutex},
};
use tenure_core::{Locks, Memory};
use tracing_subscriber::filter::LevelFilter;

/// A line of `tracing-subscriber`'s JSON. A key that is there twice is an error of serde's.
#[derive(Deserialize)]
struct Line {
    fields: Fields,
    #[serde(default)]
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Fields {
    message: String,
    #[serde(rename = "lock.name")]
    name: Option<String>,
    #[serde(rename = "lock.store")]
    store: Option<String>,
}

#[derive(Deserialize)]
struct Span {
    name: String,
    #[serde(rename = "lock.name")]
    lock: String,
    #[serde(rename = "lock.store")]
    store: String,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A span's JSON has its name under `name`, so that is no name for a field.
#[tokio::test]
async fn in_json_no_key_is_there_twice() {
    let log = Log::default();
    let writer = log.clone();
    let json = tracing_subscriber::fmt().json().with_max_level(LevelFilter::TRACE);
    let json = json.with_writer(move || writer.clone()).finish();
    let _here = tracing::subscriber::set_default(json);
    let locks = Locks::new(Memory::new());
    let guard = locks.lock("orders/42").acquire().await.unwrap();
    guard.release().await.unwrap();
    locks.close().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<Line> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let acquired = lines.iter().find(|line| line.fields.message == "lock acquired").unwrap();
    assert_eq!(acquired.fields.name.as_deref(), Some("orders/42"));
    assert_eq!(acquired.fields.store.as_deref(), Some("memory"));
    let span = acquired.spans.first().unwrap();
    assert_eq!((&*span.name, &*span.lock, &*span.store), ("lock.acquire", "orders/42", "memory"));
}
