//! Fuzz targets: one function a kind of input that somebody else decides about. None may panic, hang or leave anything
//! behind, whatever the bytes are.
//!
//! `fuzz/run TARGET SECONDS` searches for inputs that reach new code (libFuzzer); what it keeps is in `fuzz/corpus`,
//! and `cargo test -p fuzz` replays it, with a fixed number of changes to each, on a stable compiler.
#![forbid(unsafe_code)]

mod application;
mod cm;
mod frames;
mod ipv6;
mod region;
mod roce;
mod texts;
mod zeronic;
mod zeronic_sides;

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 11] = [
    ("frames", frames::run),
    ("ipv6", ipv6::run),
    ("application", application::run),
    ("region", region::run),
    ("roce", roce::run),
    ("cm", cm::run),
    ("zeronic", zeronic::run),
    ("management", texts::management),
    ("configuration", texts::configuration),
    ("xdp", texts::xdp),
    ("p4", texts::p4),
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// Reads an input piece by piece; zeros behind its end.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(most.min(self.0.len()));
        self.0 = later;
        now
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from(self.word()) | u64::from(self.word()) << 32
    }
}

/// A host with the engine that the first byte of an input names, and nothing open.
pub(crate) fn host(engine: u8) -> toe_script::sockets::Sockets {
    let engine = ["flextoe", "threads", "laminar"][usize::from(engine % 3)];
    let flags = toe_script::Flags::parse(&format!("engine={engine},rx_bytes=4096,tx_bytes=4096"));
    let stack = flags.and_then(toe_script::stack::Stack::new).expect("these flags are right");
    toe_script::sockets::Sockets::new(stack)
}
