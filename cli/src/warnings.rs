//! What goes wrong on the way and may yet go well: warnings of the library, as lines on stderr.

use crate::stderr;
use std::{
    fmt, io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    filter::filter_fn,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{DefaultFields, Writer},
    },
    prelude::*,
    registry::LookupSpan,
};

/// Shows them from now on. Losses, which are errors, are told by `run` itself.
pub(crate) fn show() {
    let lines = tracing_subscriber::fmt::layer()
        .fmt_fields(DefaultFields::new())
        .event_format(Line)
        .with_ansi(false)
        .with_writer(|| Lines)
        // It would do so on stderr itself.
        .log_internal_errors(false)
        .with_filter(filter_fn(|event| *event.level() == Level::WARN));
    tracing_subscriber::registry().with(lines).with(LevelFilter::WARN).init();
}

/// How often the same is told. A store that is away for long is asked many times.
const AGAIN: Duration = Duration::from_mins(1);

/// What was told last, and when.
static LAST: Mutex<Option<(Vec<u8>, Instant)>> = Mutex::new(None);

/// Each event comes as one piece.
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

/// As all that `tenure` says: `tenure: a release is tried again lock.name=a …`.
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
