//! Group membership: the reports that a host still has to send, by port (RFC 3810).
use engine::Nanos;
use wire::Mac;

/// A change is reported so often, since a report may be lost, and then again within this time (RFC 3810 sections 9.1
/// and 9.11).
const ROBUSTNESS: u8 = 2;
const UNSOLICITED: Nanos = 1_000_000_000;
/// For so long a switch that asked in the first version is there (RFC 3810 section 9.12, with the default intervals).
const OLDER_QUERIER: Nanos = 260_000_000_000;

/// The reports of a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    /// How often it is still to be reported that the host is a member from now on.
    changes: u8,
    /// When the next report is due.
    due: Option<Nanos>,
    /// Until then a switch uses the first version only.
    v1_until: Nanos,
}

impl Membership {
    /// Of a port on which nothing was reported yet.
    pub(crate) fn new() -> Membership {
        Membership { changes: ROBUSTNESS, due: None, v1_until: 0 }
    }

    /// A switch asked in the first version.
    pub(crate) fn on_v1_query(&mut self, now: Nanos) {
        self.v1_until = now + OLDER_QUERIER;
    }

    /// Reports are those of the first version (RFC 3810 section 8.2.1).
    pub(crate) fn is_v1(&self, now: Nanos) -> bool {
        now < self.v1_until
    }

    /// A report is to come within so long; when, where it is not due earlier already.
    pub(crate) fn ask(&mut self, now: Nanos, mac: Mac, span: Nanos) -> Option<Nanos> {
        let due = now + spread(now, mac, span);
        let is_first = self.due.is_none_or(|earlier| due < earlier);
        is_first.then(|| *self.due.insert(due))
    }

    /// The report is due: whether it is one of a change, and when the next one is.
    pub(crate) fn take(&mut self, now: Nanos, mac: Mac) -> (bool, Option<Nanos>) {
        let is_change = self.changes > 0;
        self.changes = self.changes.saturating_sub(1);
        self.due = (self.changes > 0).then(|| now + 1 + spread(now, mac, UNSOLICITED));
        (is_change, self.due)
    }
}

/// A time within a span that differs from host to host, so that not all answer a question at once.
fn spread(now: Nanos, mac: Mac, span: Nanos) -> Nanos {
    let seed = mac.0.iter().fold(now, |seed, byte| (seed ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    if span == 0 { 0 } else { (seed ^ seed >> 29) % span }
}
