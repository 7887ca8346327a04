//! The lines in a program's logs.

use serde::Deserialize;
use std::{
    future::Future,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use tenure_core::{Locks, Memory};
use tracing::Instrument;
use tracing_subscriber::{filter::LevelFilter, fmt::format::FmtSpan};

/// A line of `tracing-subscriber`'s JSON. A key that is there twice is an error of serde's.
#[derive(Deserialize)]
struct Line {
    fields: Fields,
    /// The span that the line is about.
    span: Option<Span>,
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

#[derive(Debug, Deserialize)]
struct Span {
    name: String,
    #[serde(rename = "lock.name")]
    lock: Option<String>,
    #[serde(rename = "lock.store")]
    store: Option<String>,
    request: Option<String>,
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

/// Runs `work` with its log in JSON, and returns the lines.
async fn logged(work: impl Future<Output = ()>) -> Vec<Line> {
    let log = Log::default();
    let writer = log.clone();
    let json = tracing_subscriber::fmt().json().with_max_level(LevelFilter::TRACE);
    let json = json.with_span_events(FmtSpan::CLOSE);
    let json = json.with_writer(move || writer.clone()).finish();
    let _here = tracing::subscriber::set_default(json);
    work.await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A span's JSON has its name under `name`, so that is no name for a field.
#[tokio::test]
async fn in_json_no_key_is_there_twice() {
    let lines = logged(async {
        let locks = Locks::new(Memory::new());
        let calling = async { locks.lock("orders/42").acquire().await.unwrap() };
        let guard = calling.instrument(tracing::info_span!("caller")).await;
        guard.release().await.unwrap();
        locks.close().await;
    })
    .await;
    let acquired = lines.iter().find(|line| line.fields.message == "lock acquired").unwrap();
    assert_eq!(acquired.fields.name.as_deref(), Some("orders/42"));
    assert_eq!(acquired.fields.store.as_deref(), Some("memory"));
    let [caller, span] = &acquired.spans[..] else { panic!("{:?}", acquired.spans) };
    assert_eq!((&*caller.name, &*span.name), ("caller", "lock.acquire"));
    assert_eq!((span.lock.as_deref(), span.store.as_deref()), (Some("orders/42"), Some("memory")));
    // A trace shows the wait and the hold beside each other, each with its requests.
    let closed = lines.iter().filter(|line| line.fields.message == "close");
    let closed = closed.map(|line| {
        let span = line.span.as_ref().unwrap();
        let within: Vec<_> = line.spans.iter().map(|span| &*span.name).collect();
        assert!(span.name == "caller" || span.lock.as_deref() == Some("orders/42"), "{span:?}");
        (&*span.name, span.request.as_deref(), within.join(" "))
    });
    let expected = [
        ("store.request", Some("acquire"), "caller lock.acquire"),
        ("lock.acquire", None, "caller"),
        ("store.request", Some("release"), "caller lock.hold"),
        // A line tells what is entered at its moment, and this one comes after that.
        ("lock.hold", None, ""),
        ("caller", None, ""),
    ];
    let expected = expected.map(|(name, request, within)| (name, request, within.to_owned()));
    assert_eq!(closed.collect::<Vec<_>>(), expected);
}

/// There is one for each lease, again and again, and each would be a trace of its own.
#[tokio::test(start_paused = true)]
async fn renewals_have_no_spans() {
    let lines = logged(async {
        let guard = Locks::new(Memory::new()).lock("a").acquire().await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        guard.release().await.unwrap();
    })
    .await;
    let requests: Vec<_> = lines.iter().filter_map(|line| line.span.as_ref()?.request.as_deref()).collect();
    assert_eq!(requests, ["acquire", "release"]);
}
