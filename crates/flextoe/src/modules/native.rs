//! Native modules in Rust, through the same interface as those in eBPF, as examples of its rules (FlexTOE section 3.3).
//! A segment is seen once, state is a replica's own, and what a later module needs travels with the frame.
use engine::{Changes, FlowId, Module, ModuleSource, Packet, Stage, Verdict};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use wire::predicted::{PredictedV4, PredictedV6};

/// Class of a segment, by what it carries, from [`Classifier`]. The number is what travels in the frame's first word of
/// metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Class {
    /// Not classified, or without the predicted headers of TCP.
    Other = 0,
    /// No payload.
    Empty = 1,
    /// Payload of at most [`Class::SMALL`] bytes.
    Small = 2,
    /// More.
    Large = 3,
}

impl Class {
    /// Most payload bytes of a small segment.
    pub const SMALL: u32 = 128;
}

/// At the ingress stage: gives later modules each segment's class. Changes nothing, and needs headers only.
pub struct Classifier;

impl ModuleSource for Classifier {
    fn name(&self) -> &str {
        "classifier"
    }
    fn stage(&self) -> Stage {
        Stage::Ingress
    }
    fn whole_frames(&self) -> bool {
        false
    }
    fn changes(&self) -> Changes {
        Changes::Nothing
    }
    fn replica(&self, _index: u32) -> Box<dyn Module> {
        Box::new(Classifier)
    }
}

impl Module for Classifier {
    fn process(&mut self, packet: Packet<'_>) -> Verdict {
        let (bytes, len) = (packet.frame.bytes(), packet.frame.len());
        let v6 = || PredictedV6::parse(bytes, len).map(|headers| headers.payload_len());
        let class = match PredictedV4::parse(bytes, len).map(|headers| headers.payload_len()).or_else(v6) {
            None => Class::Other,
            Some(0) => Class::Empty,
            Some(1..=Class::SMALL) => Class::Small,
            Some(_) => Class::Large,
        };
        packet.frame.metadata[0] = class as u32;
        Verdict::Pass
    }
}

/// Counts of a flow by a [`Meter`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metered {
    /// Segments received.
    pub segments: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Segments by [`Class`].
    pub classes: [u64; 4],
}

/// At the flow stage: counts each flow's segments and bytes. All segments of a flow meet the same replica, one after
/// the other, so its counters need no atomic addition. They are published for their readers.
pub struct Meter {
    published: Arc<[Published]>,
}

#[derive(Default)]
struct Published([AtomicU64; 6]);

impl Meter {
    /// A meter for flows up to `flows` (not included).
    pub fn new(flows: u32) -> Meter {
        Meter { published: (0..flows).map(|_| Published::default()).collect() }
    }

    /// The counts of a flow since the module was loaded. A number is used again by later flows, which go on from there.
    pub fn read(&self, flow: FlowId) -> Metered {
        let Some(Published(words)) = self.published.get(flow.0 as usize) else { return Metered::default() };
        let [segments, bytes, classes @ ..] = words.each_ref().map(|word| word.load(Relaxed));
        Metered { segments, bytes, classes }
    }
}

impl ModuleSource for Meter {
    fn name(&self) -> &str {
        "meter"
    }
    fn stage(&self) -> Stage {
        Stage::Flow
    }
    fn whole_frames(&self) -> bool {
        false
    }
    fn changes(&self) -> Changes {
        Changes::Nothing
    }
    fn replica(&self, _index: u32) -> Box<dyn Module> {
        let flows = vec![Metered::default(); self.published.len()];
        Box::new(MeterReplica { flows, published: Arc::clone(&self.published) })
    }
}

struct MeterReplica {
    flows: Vec<Metered>,
    published: Arc<[Published]>,
}

impl Module for MeterReplica {
    fn process(&mut self, packet: Packet<'_>) -> Verdict {
        let Some(at) = packet.flow.map(|flow| flow.0 as usize) else { return Verdict::Pass };
        if let (Some(flow), Some(Published(words))) = (self.flows.get_mut(at), self.published.get(at)) {
            flow.segments += 1;
            flow.bytes += packet.frame.len() as u64;
            flow.classes[packet.frame.metadata[0] as usize % flow.classes.len()] += 1;
            let values = [flow.segments, flow.bytes].into_iter().chain(flow.classes);
            words.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
        }
        Verdict::Pass
    }
}
