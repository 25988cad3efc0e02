//! Log lines on standard error.
use crate::config::LogLevel;
use std::io::IsTerminal;
use tracing::Level;

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
        Some(_) => tracing::subscriber::set_global_default(log.without_time().with_target(false).finish()),
        None => tracing::subscriber::set_global_default(log.with_target(false).finish()),
    };
}
