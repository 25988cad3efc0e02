//! No congestion control: the peer's window alone limits.
use super::policy::{Decision, Kind, MAX_WINDOW, Needs, Policy, Sample};

/// The table's row.
pub(super) static KIND: Kind =
    Kind { name: "none", code: 4, needs: Needs::NOTHING, new: |_mss, _now| Box::new(Unlimited) };

#[derive(Debug)]
struct Unlimited;

impl Policy for Unlimited {
    fn update(&mut self, _sample: &Sample) -> Decision {
        Decision { cwnd: MAX_WINDOW, rate: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_limits() {
        assert_eq!(Unlimited.update(&Sample::default()), Decision { cwnd: MAX_WINDOW, rate: 0 });
    }
}
