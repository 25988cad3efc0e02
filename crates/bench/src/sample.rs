//! Samples: the measured programs' output, parsed, and figures derived from it.
use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize};

/// Last output of a client (`apps/load.h`).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Printed {
    /// Seconds measured.
    pub seconds: f64,
    /// Requests answered in them.
    pub ops: u64,
    /// CPU seconds it used meanwhile.
    pub cpu_s: f64,
    /// Connections lost.
    pub errors: u64,
    /// Replies that belong to another request.
    pub wrong: u64,
    /// Requests answered on each connection.
    pub per_connection: Vec<u64>,
    /// Nanoseconds and count.
    pub histogram: Vec<(u64, u64)>,
    /// Largest latency, nanoseconds.
    pub max_ns: u64,
}

/// Latencies in microseconds; not a number, `null` in JSON, where the program that measures has none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    #[serde(deserialize_with = "number")]
    pub p50: f64,
    /// 99 %.
    #[serde(deserialize_with = "number")]
    pub p99: f64,
    /// 99.9 %.
    #[serde(deserialize_with = "number")]
    pub p999: f64,
    /// 99.99 %.
    #[serde(deserialize_with = "number")]
    pub p9999: f64,
    /// The largest.
    #[serde(deserialize_with = "number")]
    pub max: f64,
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// What all clients of a run printed, together.
pub(crate) struct Sample {
    /// Seconds measured.
    pub seconds: f64,
    /// Requests answered.
    pub ops: u64,
    /// CPU seconds of all clients.
    pub cpu_s: f64,
    /// Connections lost and replies that were wrong.
    pub errors: u64,
    /// Requests answered on each connection of all clients.
    pub per_connection: Vec<u64>,
    latencies: Histogram<u64>,
}

impl Sample {
    /// Adds up what clients printed.
    pub(crate) fn of(printed: &[String]) -> Result<Sample, String> {
        // Up to an hour, with three digits.
        let latencies = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).map_err(|e| format!("histogram: {e:?}"))?;
        let mut sum = Sample { seconds: 0.0, ops: 0, cpu_s: 0.0, errors: 0, per_connection: Vec::new(), latencies };
        for text in printed {
            let last = text.trim().lines().last().unwrap_or_default();
            let one: Printed = serde_json::from_str(last).map_err(|e| format!("the client printed {text}: {e}"))?;
            sum.seconds = one.seconds;
            sum.ops += one.ops;
            sum.cpu_s += one.cpu_s;
            sum.errors += one.errors + one.wrong;
            sum.per_connection.extend(one.per_connection);
            for (nanos, count) in one.histogram {
                sum.latencies.saturating_record_n(nanos.min(one.max_ns), count);
            }
        }
        Ok(sum)
    }

    /// Requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.ops as f64 / self.seconds
    }

    /// The latencies.
    pub(crate) fn latency(&self) -> Latency {
        let at = |percent| self.latencies.value_at_percentile(percent) as f64 / 1e3;
        Latency {
            p50: at(50.0),
            p99: at(99.0),
            p999: at(99.9),
            p9999: at(99.99),
            max: self.latencies.max() as f64 / 1e3,
        }
    }
}

/// Jain's fairness index: 1 where all are equal, 1/n where one has everything (Jain, Chiu and Hawe, 1984).
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// The value below which this share of the values lies.
pub(crate) fn quantile(values: &[u64], share: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = (share * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

/// Bytes on the wire of a message, in Ethernet frames of 1,500-byte packets: TCP with timestamps carries 1,448 bytes
/// behind 66 bytes of headers.
pub(crate) fn wire_bytes(message: u64) -> u64 {
    message + message.div_ceil(1448) * 66
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_a_share_for_one_that_has_all() {
        assert_eq!(jain(&[5, 5, 5]), 1.0);
        assert_eq!(jain(&[9, 0, 0]), 1.0 / 3.0);
        assert_eq!(jain(&[0, 0]), 0.0);
    }

    #[test]
    fn clients_are_added_up() {
        let print = |ops: u64, nanos: u64| {
            format!(
                "{{\"seconds\":2.0,\"ops\":{ops},\"cpu_s\":0.5,\"errors\":0,\"wrong\":1,\"per_connection\":[{ops}],\
                 \"histogram\":[[{nanos},{ops}]],\"max_ns\":{nanos}}}"
            )
        };
        let sum = Sample::of(&[print(9_990, 1000), print(10, 100_000)]).unwrap();
        assert_eq!((sum.rate(), sum.errors, sum.cpu_s), (5_000.0, 2, 1.0));
        assert_eq!(sum.per_connection, [9_990, 10]);
        let latency = sum.latency();
        assert!((latency.p99 - 1.0).abs() < 0.01 && (latency.p9999 - 100.0).abs() < 0.2, "{latency:?}");
        assert!(Sample::of(&["nonsense".into()]).is_err());
    }

    #[test]
    fn quantiles_and_bytes() {
        assert_eq!(quantile(&[4, 1, 3, 2], 0.5), 3);
        assert_eq!(quantile(&[4, 1, 3, 2], 0.01), 1);
        assert_eq!(wire_bytes(1448), 1514);
        assert_eq!(wire_bytes(65_536), 65_536 + 46 * 66);
    }
}
