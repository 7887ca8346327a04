//! What goes wrong on the way and may yet go well: warnings of the library, as lines on stderr.

use std::{fmt, io};
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
        .with_writer(io::stderr)
        .with_filter(filter_fn(|event| *event.level() == Level::WARN));
    tracing_subscriber::registry().with(lines).with(LevelFilter::WARN).init();
}

/// As all that `tenure` says: `tenure: a release is tried again name=a …`.
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
