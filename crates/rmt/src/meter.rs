//! Meters: two rates, three colours, blind to earlier colours (RFC 2698). The control plane sets the rates; a meter
//! without any is green. Shared by interpreter and native code.

/// What a meter lets pass. In bytes and bytes a second, or in packets, as the program declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// A second; above, packets are yellow.
    pub committed: u64,
    /// At once, within the committed rate.
    pub committed_burst: u64,
    /// A second; above, packets are red.
    pub peak: u64,
    /// At once, within the peak rate.
    pub peak_burst: u64,
}

/// `MeterColor_t`.
const GREEN: u8 = 0;
const YELLOW: u8 = 1;
const RED: u8 = 3;

/// Tokens are counted in billionths, so that each nanosecond brings a whole number of them.
const UNIT: u128 = 1_000_000_000;

#[derive(Debug, Clone)]
struct Cell {
    rates: Rates,
    committed: u128,
    peak: u128,
    at_ns: u64,
}

/// An array of meters.
#[derive(Debug, Clone)]
pub(crate) struct Meters {
    bytes: bool,
    cells: Vec<Option<Cell>>,
}

impl Meters {
    pub(crate) fn new(size: u32, bytes: bool) -> Meters {
        Meters { bytes, cells: vec![None; size as usize] }
    }

    /// Sets the rates of one, whose bursts are there from the start; without rates, it is green. False beyond the end.
    pub(crate) fn set(&mut self, index: u32, rates: Option<Rates>, now_ns: u64) -> bool {
        let full = |burst: u64| burst as u128 * UNIT;
        let cell = rates.map(|rates| Cell {
            rates,
            committed: full(rates.committed_burst),
            peak: full(rates.peak_burst),
            at_ns: now_ns,
        });
        self.cells.get_mut(index as usize).map(|place| *place = cell).is_some()
    }

    /// The colour of a packet.
    pub(crate) fn execute(&mut self, index: u64, now_ns: u64, length: u64) -> u8 {
        let cost = if self.bytes { length as u128 } else { 1 } * UNIT;
        let Some(Some(cell)) = self.cells.get_mut(index as usize) else { return GREEN };
        let passed = now_ns.saturating_sub(cell.at_ns) as u128;
        cell.at_ns = cell.at_ns.max(now_ns);
        let filled = |tokens: u128, rate: u64, burst: u64| (tokens + rate as u128 * passed).min(burst as u128 * UNIT);
        cell.committed = filled(cell.committed, cell.rates.committed, cell.rates.committed_burst);
        cell.peak = filled(cell.peak, cell.rates.peak, cell.rates.peak_burst);
        if cell.peak < cost {
            return RED;
        }
        cell.peak -= cost;
        if cell.committed < cost {
            return YELLOW;
        }
        cell.committed -= cost;
        GREEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_both_rates() {
        let mut meters = Meters::new(2, true);
        assert_eq!(meters.execute(0, 0, 1_000_000), GREEN, "no rates");
        let rates = Rates { committed: 1000, committed_burst: 100, peak: 2000, peak_burst: 300 };
        assert!(meters.set(0, Some(rates), 0) && !meters.set(2, None, 0));
        assert_eq!([100, 100, 100, 100].map(|len| meters.execute(0, 0, len)), [GREEN, YELLOW, YELLOW, RED]);
        // In 50 ms, 50 committed and 100 peak tokens came.
        assert_eq!(meters.execute(0, 50_000_000, 100), YELLOW);
        assert_eq!(meters.execute(0, 50_000_000, 1), RED);
        // After a second both are full, and no fuller.
        assert_eq!([100, 200, 1].map(|len| meters.execute(0, 2_000_000_000, len)), [GREEN, YELLOW, RED]);
        assert_eq!(meters.execute(1, 0, 9999), GREEN);
        assert_eq!(meters.execute(7, 0, 9999), GREEN, "beyond the end");
    }

    #[test]
    fn packets_cost_one() {
        let mut meters = Meters::new(1, false);
        meters.set(0, Some(Rates { committed: 1, committed_burst: 2, peak: 1, peak_burst: 2 }), 0);
        assert_eq!([1500, 9000, 1].map(|len| meters.execute(0, 0, len)), [GREEN, GREEN, RED]);
    }
}
