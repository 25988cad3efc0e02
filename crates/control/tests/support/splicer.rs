//! A splice module without eBPF. Before an engine gets a frame, what the table names is translated and sent, as
//! `xdp/splice.c` does. FIN, RST and SYN take the entry out and go to the control plane.
use super::recording::parse;
use control::{Seen, SpliceTable};
use engine::stream::{FourTuple, Stream};
use engine::{Burst, Engine, Exception, Frame, Nanos, Worker};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use wire::Translation;
use wire::tcp::Flags;

/// What module and control plane share.
#[derive(Default)]
pub(crate) struct Model {
    pub entries: HashMap<FourTuple, (u32, Translation)>,
    pub seen: HashMap<u32, Seen>,
    pub capacity: u32,
    /// Frames that the module sent.
    pub sent: u64,
}

pub(crate) type Shared = Arc<Mutex<Model>>;

pub(crate) fn shared(capacity: u32) -> Shared {
    Arc::new(Mutex::new(Model { capacity, ..Model::default() }))
}

pub(crate) struct Table(pub Shared);

impl SpliceTable for Table {
    fn capacity(&self) -> u32 {
        self.0.lock().unwrap().capacity
    }
    fn start(&mut self, direction: u32, seen: &Seen) {
        self.0.lock().unwrap().seen.insert(direction, *seen);
    }
    fn insert(&mut self, direction: u32, tuple: &FourTuple, translation: &Translation) -> bool {
        self.0.lock().unwrap().entries.insert(*tuple, (direction, *translation));
        true
    }
    fn remove(&mut self, tuple: &FourTuple) {
        self.0.lock().unwrap().entries.remove(tuple);
    }
    fn seen(&self, direction: u32) -> Seen {
        self.0.lock().unwrap().seen.get(&direction).copied().unwrap_or_default()
    }
}

/// An engine with the module before it.
pub(crate) struct Splicer {
    pub inner: Box<dyn Engine<Stream>>,
    pub model: Shared,
}

enum Fate {
    Pass,
    Transmit,
    Redirect,
}

impl Model {
    fn process(&mut self, frame: &mut Frame) -> Fate {
        let Some((ip, header, payload)) = parse(frame.bytes()) else { return Fate::Pass };
        let tuple = FourTuple {
            local_ip: ip.dst.into(),
            remote_ip: ip.src.into(),
            local_port: header.dst_port,
            remote_port: header.src_port,
        };
        let Some((direction, translation)) = self.entries.get(&tuple).copied() else { return Fate::Pass };
        if header.flags.any(Flags::SYN | Flags::FIN | Flags::RST) {
            self.entries.remove(&tuple);
            return Fate::Redirect;
        }
        let end = translation.apply(frame.bytes_mut()).unwrap();
        frame.checksum = port::Checksum::Partial { start: end.start, field: end.field };
        let seen = self.seen.entry(direction).or_default();
        seen.segments += 1;
        seen.bytes += payload as u64;
        seen.next = header.seq + payload as u32;
        seen.ack = header.ack;
        seen.window = (header.window as u32) << translation.window_in;
        self.sent += 1;
        Fate::Transmit
    }
}

impl Engine<Stream> for Splicer {
    fn name(&self) -> &'static str {
        "splicer"
    }
    fn features(&self) -> engine::Features<engine::stream::Features> {
        self.inner.features()
    }
    fn poll(&mut self, now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        let mut model = self.model.lock().unwrap();
        let mut rest = Vec::new();
        for mut frame in burst.rx.drain(..) {
            match model.process(&mut frame) {
                Fate::Pass => rest.push(frame),
                Fate::Transmit => burst.tx.push(frame),
                Fate::Redirect => burst.exceptions.push((Exception::Redirected, frame)),
            }
        }
        drop(model);
        burst.rx.append(&mut rest);
        self.inner.poll(now, burst)
    }
    fn has_work(&self, now: Nanos) -> bool {
        self.inner.has_work(now)
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.inner.next_deadline()
    }
    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        self.inner.workers()
    }
    fn trim(&mut self) {
        self.inner.trim();
    }
    fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        self.inner.module_stats()
    }
}
