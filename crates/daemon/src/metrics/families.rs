//! Metrics at one moment: series by name.
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;

pub(super) type Labels = Vec<(&'static str, String)>;

/// What a series means.
#[derive(Debug, Clone)]
pub(super) enum Sample {
    Counter(f64),
    Gauge(f64),
    Histogram { sum: f64, count: u64, buckets: Vec<(f64, u64)> },
}

/// Series of one name.
#[derive(Debug)]
pub(super) struct Family {
    pub help: String,
    pub series: Vec<(Labels, Sample)>,
}

/// All metrics at one moment, by name.
#[derive(Debug, Default)]
pub(super) struct Families(pub BTreeMap<String, Family>);

impl Families {
    /// Adds a series.
    pub(super) fn add(&mut self, name: &str, help: &str, labels: &[(&'static str, &str)], sample: Sample) {
        let family = self.0.entry(name.into()).or_insert_with(|| Family { help: help.into(), series: Vec::new() });
        let labels = labels.iter().map(|(key, value)| (*key, value.to_string())).collect();
        family.series.push((labels, sample));
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        for (name, family) in &self.0 {
            let kind = match family.series.first() {
                Some((_, Sample::Counter(_))) => MetricType::Counter,
                Some((_, Sample::Histogram { .. })) => MetricType::Histogram,
                _ => MetricType::Gauge,
            };
            let mut metric = encoder.encode_descriptor(name, &family.help, None, kind)?;
            for (labels, sample) in &family.series {
                let mut series = metric.encode_family(labels)?;
                match sample {
                    Sample::Counter(value) => series.encode_counter::<NoLabelSet, _, u64>(value, None)?,
                    Sample::Gauge(value) => series.encode_gauge(value)?,
                    Sample::Histogram { sum, count, buckets } => {
                        series.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}
