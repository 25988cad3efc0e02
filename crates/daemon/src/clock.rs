//! The one clock of a daemon: nanoseconds since its start.
use port::Nanos;
use rustix::time::{ClockId, clock_gettime};
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

    /// The clock of a daemon that goes on with another one's, which showed `now` some time ago and 0 at `origin` of the
    /// system's monotonic clock. It never shows less than the other one has shown: peers drop timestamps that go back
    /// (RFC 7323 5.3). To be called before any other use.
    pub(crate) fn go_on(now: Nanos, origin: Nanos) -> Clock {
        Clock(*START.get_or_init(|| Clock::from(now, origin).0))
    }

    fn from(now: Nanos, origin: Nanos) -> Clock {
        // In this order: time between the two reads puts the clock ahead, never back.
        let present = Instant::now();
        let elapsed = monotonic().saturating_sub(origin).max(now);
        Clock(present.checked_sub(Duration::from_nanos(elapsed)).unwrap_or(present))
    }

    /// Its 0, as the system's monotonic clock shows it.
    pub(crate) fn origin(&self) -> Nanos {
        monotonic().saturating_sub(self.now())
    }

    /// Unix time, in nanoseconds, of its 0.
    pub(crate) fn epoch(&self) -> Nanos {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (since.as_nanos() as Nanos).saturating_sub(self.now())
    }

    /// The same time as a function: the tick source of tracepoints.
    pub(crate) fn ticks() -> u64 {
        Clock::start().now()
    }

    pub(crate) fn now(&self) -> Nanos {
        // Never 0, so that "never" and "at the start" stay apart for users of 0 as never; 584 years fit.
        self.0.elapsed().as_nanos() as Nanos + 1
    }
}

/// The clock that all processes of the machine share, and that [`Instant`] reads.
fn monotonic() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as Nanos * 1_000_000_000 + now.tv_nsec as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other daemon's clock goes on while its message is on its way.
    #[test]
    fn a_clock_that_goes_on_is_not_behind_the_other_one() {
        let (sent, origin) = (5_000_000, monotonic() - 7_000_000);
        let clock = Clock::from(sent, origin);
        let other = monotonic() - origin;
        assert!(clock.now() >= 7_000_000 && clock.now() >= other);
        assert!(clock.origin().abs_diff(origin) < 1_000_000_000);
    }
}
