//! The library's warnings as lines on stderr.

use crate::stderr::{self, Volume};
use std::{
    fmt, io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tracing::{Event, Level, Metadata, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    filter::filter_fn,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{DefaultFields, Writer},
    },
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
        Level::WARN => true,
        _ => *event.level() <= level && event.target().starts_with("tenure"),
    };
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(DefaultFields::new())
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

/// The last warning, and when it was shown.
static LAST: Mutex<Option<(Vec<u8>, Instant)>> = Mutex::new(None);

/// Each event arrives in one write.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(told, at)| told != lines || at.elapsed() >= AGAIN) {
            *last = Some((lines.to_vec(), Instant::now()));
            stderr::write(lines.to_vec());
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats like all messages of `tenure`: `tenure: the release failed; trying again lock.name=a …`.
struct Line;

impl<S, Fields> FormatEvent<S, Fields> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    Fields: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, Fields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "tenure: ")?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
