//! The library's warnings as lines on stderr.

use crate::{
    people::plain,
    stderr::{self, Volume},
};
use std::{
    fmt, io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{
    filter::filter_fn,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    prelude::*,
    registry::LookupSpan,
};

/// Shows warnings from now on, and with `--verbose` all events of tenure's crates except errors: `run` reports losses
/// itself. With `--quiet` shows nothing.
pub(crate) fn show() {
    let level = match stderr::volume() {
        Volume::Errors => return,
        Volume::Warnings => Level::WARN,
        Volume::Everything => Level::DEBUG,
    };
    let is_shown = move |event: &Metadata<'_>| match *event.level() {
        _ if repeats_a_password(event) => false,
        Level::ERROR => false,
        // ZooKeeper's client repeats an outage in other words.
        Level::WARN => level == Level::DEBUG || !event.target().starts_with("zookeeper_client"),
        _ => *event.level() <= level && event.target().starts_with("tenure"),
    };
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Line)
        .with_ansi(false)
        .with_writer(|| Lines)
        // It would print them on stderr itself.
        .log_internal_errors(false)
        .with_filter(filter_fn(is_shown));
    tracing_subscriber::registry().with(lines).with(LevelFilter::from_level(level)).init();
}

/// PostgreSQL's driver warns of a line of `~/.pgpass` that it cannot read, and repeats it.
fn repeats_a_password(event: &Metadata<'_>) -> bool {
    event.target().starts_with("sqlx_postgres") && event.fields().field("line").is_some()
}

/// The least time between two equal warnings. During a long outage the store is asked many times.
pub(crate) const AGAIN: Duration = Duration::from_mins(1);

/// The warnings of the last minute, and when each was shown.
static SHOWN: Mutex<Vec<(Vec<u8>, Instant)>> = Mutex::new(Vec::new());

/// Whether no equal warning was shown in the last minute. Notes that this one is shown now.
fn is_news(shown: &mut Vec<(Vec<u8>, Instant)>, lines: &[u8], now: Instant) -> bool {
    shown.retain(|(_, at)| now.duration_since(*at) < AGAIN);
    let is_news = shown.iter().all(|(warning, _)| warning != lines);
    if is_news {
        shown.push((lines.to_vec(), now));
    }
    is_news
}

/// Each event arrives in one write.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if is_news(&mut shown, lines, Instant::now()) {
            stderr::write(lines.to_vec());
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats like all messages of `tenure`: `tenure: the release failed; trying again (name a, store …): timed out`.
struct Line;

impl<S, Fields> FormatEvent<S, Fields> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    Fields: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, Fields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut parts = Parts::default();
        event.record(&mut parts);
        write!(writer, "tenure: {}", parts.message)?;
        if !parts.details.is_empty() {
            write!(writer, " ({})", parts.details.join(", "))?;
        }
        if let Some(error) = parts.error {
            write!(writer, ": {error}")?;
        }
        writeln!(writer)
    }
}

/// The parts of an event.
#[derive(Default)]
struct Parts {
    message: String,
    details: Vec<String>,
    error: Option<String>,
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Servers and other programs may have put anything into it.
        let value = plain(&format!("{value:?}"));
        match field.name() {
            // What the bridge from the crate `log` adds.
            name if name.starts_with("log.") => {}
            "message" => self.message = value,
            "error" => self.error = Some(value),
            name => self.details.push(format!("{} {value}", name.trim_start_matches("lock."))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// What an event writes.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn alternating_warnings_are_shown_once_a_minute_each() {
        let (mut shown, start) = (Vec::new(), Instant::now());
        let mut is_shown =
            |text: &str, seconds| is_news(&mut shown, text.as_bytes(), start + Duration::from_secs(seconds));
        assert!(is_shown("one", 0) && is_shown("other", 1));
        assert!(!is_shown("one", 2) && !is_shown("other", 3) && !is_shown("one", 59));
        assert!(is_shown("one", 60) && !is_shown("other", 60) && is_shown("other", 61));
    }

    #[test]
    fn event_reads_like_a_message() {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer().event_format(Line).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            let (name, error) = ("a b", io::Error::other("timed\x1bout"));
            tracing::warn!(lock.name = %name, lock.store = "redis at db", count = 2, %error, "the release failed");
            tracing::warn!("no more");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let expected = "tenure: the release failed (name a b, store redis at db, count 2): timed\\u{1b}out\ntenure: no more\n";
        assert_eq!(text, expected);
    }
}
