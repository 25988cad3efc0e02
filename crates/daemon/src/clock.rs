//! The one clock of a daemon: nanoseconds since its start.
use port::Nanos;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time since the daemon started; the same on all of its threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

/// When the daemon started.
static START: OnceLock<Instant> = OnceLock::new();

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(*START.get_or_init(Instant::now))
    }

    /// The clock of a daemon that goes on with another one's: it shows this now. To be called before any other use.
    pub(crate) fn start_at(now: Nanos) -> Clock {
        let begin = Instant::now().checked_sub(Duration::from_nanos(now)).unwrap_or_else(Instant::now);
        Clock(*START.get_or_init(|| begin))
    }

    /// Unix time, in nanoseconds, of its 0.
    pub(crate) fn epoch(&self) -> Nanos {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (since.as_nanos() as Nanos).saturating_sub(self.now())
    }

    /// The same time for those who take a plain function: the tick source of tracepoints.
    pub(crate) fn ticks() -> u64 {
        Clock::start().now()
    }

    pub(crate) fn now(&self) -> Nanos {
        // Never 0, so that "never" and "at the start" stay apart for those who use 0 for never; 584 years fit.
        self.0.elapsed().as_nanos() as Nanos + 1
    }
}
