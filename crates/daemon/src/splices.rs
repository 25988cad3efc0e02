//! The maps of `xdp/splice.c`, as the control plane uses them (docs/xdp/splice.md).
use control::{Seen, SpliceTable};
use engine::stream::FourTuple;
use std::sync::Arc;
use wire::{Seq, Translation};
use xdp::{Map, Program};

/// Its maps' names.
const SPLICES: &str = "splices";
const SEEN: &str = "splice_seen";
/// Bytes of `struct splice_key`, `struct splice` and `struct splice_seen`.
const KEY: usize = 12;
const VALUE: usize = 48;
const SEEN_VALUE: usize = 32;
/// In `splice.flags`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;

/// The maps of a loaded splice module.
pub struct SpliceMaps {
    program: Arc<Program>,
}

impl SpliceMaps {
    /// The maps of a program, where it is a splice module: by their names and sizes.
    pub fn of(program: &Arc<Program>) -> Option<SpliceMaps> {
        let fits = |name: &str, key: usize, value: usize| {
            let definition = &program.map(name).ok()?.definition;
            (definition.key_size as usize == key && definition.value_size as usize == value).then_some(())
        };
        fits(SPLICES, KEY, VALUE)?;
        fits(SEEN, 4, SEEN_VALUE)?;
        Some(SpliceMaps { program: Arc::clone(program) })
    }

    fn map(&self, name: &str) -> Option<&Map> {
        self.program.map(name).ok()
    }
}

impl SpliceTable for SpliceMaps {
    fn capacity(&self) -> u32 {
        let entries = |name: &str| self.map(name).map_or(0, |map| map.definition.max_entries);
        entries(SPLICES).min(entries(SEEN))
    }

    fn start(&mut self, direction: u32, seen: &Seen) {
        if let Some(map) = self.map(SEEN) {
            // An array takes every index below its size.
            let _ = map.set_value(&direction.to_ne_bytes(), &seen_bytes(seen));
        }
    }

    fn insert(&mut self, direction: u32, tuple: &FourTuple, translation: &Translation) -> bool {
        let Some(key) = key(tuple) else { return false };
        self.map(SPLICES).is_some_and(|map| map.set_value(&key, &value(direction, translation)).is_ok())
    }

    fn remove(&mut self, tuple: &FourTuple) {
        if let Some((map, key)) = self.map(SPLICES).zip(key(tuple)) {
            // The module may have taken it out itself.
            map.remove(&key);
        }
    }

    fn seen(&self, direction: u32) -> Seen {
        self.map(SEEN).and_then(|map| read_seen(&map.value(&direction.to_ne_bytes(), 0)?)).unwrap_or_default()
    }
}

/// `struct splice_key`: as it stands in a segment that comes in. The module has connections over IPv4 only.
fn key(tuple: &FourTuple) -> Option<[u8; KEY]> {
    let tuple = tuple.as_v4()?;
    let mut key = [0; KEY];
    key[..4].copy_from_slice(&tuple.remote_ip.octets());
    key[4..8].copy_from_slice(&tuple.local_ip.octets());
    key[8..10].copy_from_slice(&tuple.remote_port.to_be_bytes());
    key[10..].copy_from_slice(&tuple.local_port.to_be_bytes());
    Some(key)
}

/// `struct splice`.
fn value(direction: u32, to: &Translation) -> [u8; VALUE] {
    let mut value = [0; VALUE];
    let (stamp, echo) = to.timestamps.unwrap_or_default();
    value[..6].copy_from_slice(&to.dst_mac.0);
    value[6..12].copy_from_slice(&to.src_mac.0);
    value[12..16].copy_from_slice(&to.src.octets());
    value[16..20].copy_from_slice(&to.dst.octets());
    value[20..22].copy_from_slice(&to.src_port.to_be_bytes());
    value[22..24].copy_from_slice(&to.dst_port.to_be_bytes());
    for (at, number) in [(24, to.seq), (28, to.ack), (32, stamp), (36, echo), (44, direction)] {
        value[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    value[40] = to.window_in;
    value[41] = to.window_out;
    value[42] = if to.timestamps.is_some() { TIMESTAMPS } else { 0 } | if to.sack { SACK } else { 0 };
    value
}

/// `struct splice_seen`.
fn seen_bytes(seen: &Seen) -> [u8; SEEN_VALUE] {
    let mut bytes = [0; SEEN_VALUE];
    bytes[..8].copy_from_slice(&seen.segments.to_ne_bytes());
    bytes[8..16].copy_from_slice(&seen.bytes.to_ne_bytes());
    for (at, number) in [(16, seen.next.0), (20, seen.ack.0), (24, seen.window)] {
        bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

fn read_seen(bytes: &[u8]) -> Option<Seen> {
    let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let (next, ack) = (Seq(word(16)?), Seq(word(20)?));
    Some(Seen { segments: long(0)?, bytes: long(8)?, next, ack, window: word(24)? })
}
