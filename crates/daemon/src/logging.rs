//! Log lines on standard error.
use crate::config::LogLevel;
use std::fmt;
use std::io::IsTerminal;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Logs from `level` on, for the whole process. With systemd the journal adds the time; on a terminal the formatter
/// does.
pub fn start(level: LogLevel) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(colour);
    // A second call in one process (tests) keeps the first one's choice.
    let _ = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => tracing::subscriber::set_global_default(log.event_format(Journal::new()).finish()),
        None => tracing::subscriber::set_global_default(log.with_target(false).finish()),
    };
}

/// Lines with the priority in front (sd-daemon(3)), and without the time, which the journal has.
struct Journal {
    line: Format<Full, ()>,
}

impl Journal {
    fn new() -> Journal {
        Journal { line: Format::default().without_time().with_target(false).with_level(false).with_ansi(false) }
    }
}

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(to, "<{priority}>")?;
        self.line.format_event(context, to, event)
    }
}
