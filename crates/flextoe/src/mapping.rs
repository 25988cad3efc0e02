//! Mapping of modules to threads, and their replication.
use serde::{Deserialize, Serialize};

/// The mapping of modules to threads (thesis sections 4.3.2 and 4.4.2). In a configuration file:
///
/// ```toml
/// [mapping]
/// threads = true
/// preprocess = 2
/// postprocess = 2
/// ```
///
/// Without `threads`, which is the default, all modules run one after the other on the engine's own thread. Replication
/// factors other than `flow_groups` mean nothing then. With it, each replica of pre-processing, protocol (one a flow
/// group), post-processing and DMA gets a thread. Sequencer, context queue, flow scheduler and netif stay on the
/// engine's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mapping {
    /// Modules run on threads of their own.
    pub threads: bool,
    /// Replicas of the pre-processing module.
    pub preprocess: u8,
    /// Flow groups, each with a protocol module of its own.
    pub flow_groups: u8,
    /// Replicas of the post-processing module.
    pub postprocess: u8,
    /// Replicas of the DMA module.
    pub dma: u8,
}

/// Most replicas of a module.
const MOST: u8 = 16;

impl Default for Mapping {
    fn default() -> Mapping {
        Mapping { threads: false, preprocess: 1, flow_groups: 1, postprocess: 1, dma: 1 }
    }
}

impl Mapping {
    /// Whether the factors are within limits; else a sentence that names the one that is not.
    pub fn check(&self) -> Result<(), String> {
        let factors = [
            ("preprocess", self.preprocess),
            ("flow_groups", self.flow_groups),
            ("postprocess", self.postprocess),
            ("dma", self.dma),
        ];
        match factors.iter().find(|(_, factor)| !(1..=MOST).contains(factor)) {
            None => Ok(()),
            Some((name, factor)) => Err(format!("{name} = {factor}: a module has 1 to {MOST} replicas")),
        }
    }

    /// The same with every factor within limits.
    pub(crate) fn clamped(&self) -> Mapping {
        let within = |factor: u8| factor.clamp(1, MOST);
        Mapping {
            threads: self.threads,
            preprocess: within(self.preprocess),
            flow_groups: within(self.flow_groups),
            postprocess: within(self.postprocess),
            dma: within(self.dma),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_partial_text_and_refuses_unknown_names() {
        let mapping: Mapping = serde_json::from_str(r#"{"threads": true, "dma": 2}"#).unwrap();
        assert_eq!(mapping, Mapping { threads: true, dma: 2, ..Mapping::default() });
        assert!(serde_json::from_str::<Mapping>(r#"{"thread": true}"#).is_err());
    }

    #[test]
    fn factors_have_limits() {
        assert_eq!(Mapping::default().check(), Ok(()));
        let error = Mapping { dma: 0, ..Mapping::default() }.check().unwrap_err();
        assert!(error.contains("dma"), "{error}");
        assert!(Mapping { preprocess: 17, ..Mapping::default() }.check().is_err());
    }
}
