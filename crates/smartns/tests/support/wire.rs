//! A wire with faults.
use engine::{Checksum, Frame, FramePool, cut};
use shm::Span;
use std::collections::BTreeMap;
use wire::{ethernet, ipv4};

/// Numbers out of a seed (xorshift64*).
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    /// True so many times in a thousand.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

/// How often each happens to a frame, in a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub lost: u64,
    pub repeated: u64,
    pub delayed: u64,
    pub damaged: u64,
    /// Marked as having met congestion, where the sender answers that.
    pub marked: u64,
}

/// A frame under way.
#[derive(Clone)]
pub(crate) struct Parcel {
    pub bytes: Vec<u8>,
    pub checksum: Checksum,
    pub segment_size: u16,
    /// Payload by reference, within the machine.
    pub payload: Option<Span>,
}

impl Parcel {
    fn of(frame: &Frame) -> Parcel {
        Parcel {
            bytes: frame.bytes().to_vec(),
            checksum: frame.checksum,
            segment_size: frame.segment_size,
            payload: frame.payload().cloned(),
        }
    }
}

impl Parcel {
    fn len(&self) -> usize {
        self.bytes.len() + self.payload.as_ref().map_or(0, Span::len)
    }
}

/// The path of a frame, by its UDP source port.
pub(crate) fn path_of(bytes: &[u8], paths: usize) -> usize {
    let port = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    usize::from(u16::from_be_bytes([bytes[port], bytes[port + 1]])) % paths
}

/// Paths of a wire at most.
const MOST_PATHS: usize = 8;

/// Decides about a frame.
pub(super) type Gate = Box<dyn FnMut(usize, &[u8]) -> bool>;

/// Frames under way.
pub(crate) struct Wire {
    faults: Faults,
    random: Random,
    frames: BTreeMap<(u64, u64), (usize, Parcel)>,
    count: u64,
    /// Frames that were lost or damaged.
    pub harmed: u64,
    /// Frames whose payload was by reference.
    pub referred: u64,
    /// Frames of more than 1000 bytes that were sent.
    pub long: u64,
    /// How many frames, in a thousand, stay as they are within a machine: whole trains, without checksums.
    pub inside: u64,
    /// Sees each frame that is sent: to which side, and its bytes. False loses it.
    pub gate: Option<Gate>,
    /// How often slower than 8 bytes in a nanosecond each path of it is.
    pub slower: u64,
    /// Paths; the UDP source port chooses. Each takes so many nanoseconds more than the one before.
    pub paths: usize,
    pub skew: u64,
    /// When the paths are free again, in each direction.
    free_at: [[u64; MOST_PATHS]; 2],
}

impl Wire {
    pub(crate) fn new(seed: u64, faults: Faults) -> Wire {
        let (random, frames) = (Random::new(seed), BTreeMap::new());
        Wire {
            faults,
            random,
            frames,
            count: 0,
            harmed: 0,
            long: 0,
            referred: 0,
            inside: 0,
            gate: None,
            slower: 1,
            paths: 1,
            skew: 0,
            free_at: [[0; MOST_PATHS]; 2],
        }
    }

    /// Without faults, within a machine.
    pub(crate) fn perfect() -> Wire {
        Wire { inside: 1000, ..Wire::new(1, Faults::default()) }
    }

    /// Without faults, from one machine to another.
    pub(crate) fn between_machines() -> Wire {
        Wire::new(1, Faults::default())
    }

    /// Puts a frame of a shard's on its way, or the packets of which it is made.
    pub(crate) fn send(&mut self, to: usize, now: u64, frame: Box<Frame>, pool: &mut FramePool) {
        let mut packets = Vec::new();
        if self.inside > 0 && self.random.chance(self.inside) {
            packets.push(frame);
        } else {
            assert!(cut(frame, pool, &mut packets).is_ok(), "a shard sends packets");
        }
        for packet in packets {
            self.carry(to, now, Parcel::of(&packet));
            pool.put(packet);
        }
    }

    /// How many frames were sent.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Puts a frame on its way: 2 us, and a nanosecond for eight bytes.
    pub(crate) fn carry(&mut self, to: usize, now: u64, parcel: Parcel) {
        let passes = self.gate.as_mut().is_none_or(|gate| gate(to, &parcel.bytes));
        let copies = if self.random.chance(self.faults.repeated) { 2 } else { 1 };
        for _ in 0..copies {
            (self.count, self.long) = (self.count + 1, self.long + u64::from(parcel.len() > 1000));
            self.referred += u64::from(parcel.payload.is_some());
            if !passes || self.random.chance(self.faults.lost) {
                self.harmed += 1;
                continue;
            }
            let mut parcel = parcel.clone();
            // Nobody damages what stays in the machine.
            if parcel.checksum == Checksum::Complete && self.random.chance(self.faults.damaged) {
                let at = self.random.below(parcel.bytes.len() as u64) as usize;
                parcel.bytes[at] ^= 1 << self.random.below(8);
                self.harmed += 1;
            }
            if self.faults.marked > 0 && self.random.chance(self.faults.marked) {
                ipv4::mark_ce(&mut parcel.bytes[ethernet::HEADER_LEN..]);
            }
            let path = path_of(&parcel.bytes, self.paths);
            let leaves = self.free_at[to][path].max(now) + parcel.len() as u64 * self.slower / 8;
            self.free_at[to][path] = leaves;
            let late = if self.random.chance(self.faults.delayed) { self.random.below(30_000) } else { 0 };
            let late = late + path as u64 * self.skew;
            self.frames.insert((leaves + 2000 + late, self.count), (to, parcel));
        }
    }

    /// Frames that have come to a side.
    pub(crate) fn arrived(&mut self, side: usize, now: u64) -> Vec<Parcel> {
        let due = self.frames.range(..=(now, u64::MAX)).filter(|(_, (to, _))| *to == side);
        let keys: Vec<(u64, u64)> = due.map(|(key, _)| *key).collect();
        keys.iter().filter_map(|key| self.frames.remove(key)).map(|(_, parcel)| parcel).collect()
    }

    /// When the next frame comes.
    pub(crate) fn next(&self) -> Option<u64> {
        self.frames.keys().next().map(|(at, _)| *at)
    }
}
