//! Flows of the compiled program: their registers as a value, and packets through it one by one.
use rmt::interp::Session;
use rmt::native::{Batch, EntryKey, Input, Native};
use std::path::Path;

pub(crate) const HOST: u16 = 64;
pub(crate) const CONTROL: u16 = 65;
pub(crate) const NET: u16 = 8;

/// The registers that are state, each with its words: all of the first flow, then those of the next.
pub(crate) type Registers = Vec<[u32; 2]>;

pub(crate) struct Flow {
    native: Native,
    batch: Batch,
    /// Registers, and the entry of each.
    registers: Vec<(usize, u32)>,
}

/// What a packet became.
#[derive(Default)]
pub(crate) struct Out {
    /// What left, and by which port.
    pub sent: Option<(u16, Vec<u8>)>,
    /// The pseudo segment.
    pub pseudo: Option<Vec<u8>>,
}

impl Flow {
    /// `rx` is the sequence number of the receive stream's first byte, `mask` that of its buffer.
    pub(crate) fn new(extensions: &[&str], rx: u32, tx: u32, mask: u32) -> Flow {
        Flow::several(extensions, &[rx], tx, mask)
    }

    /// Several flows, which differ in the peer's port: 4000 and so on.
    pub(crate) fn several(extensions: &[&str], rx: &[u32], tx: u32, mask: u32) -> Flow {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4/laminar.p4");
        let named = |(name, value): (&str, &str)| (name.to_string(), value.to_string());
        let defines = [("FLOWS", "16"), ("RX_SCALE", "0"), ("NOTIFY_ACKS", "")];
        let defines: Vec<_> = defines.into_iter().chain(extensions.iter().map(|e| (*e, ""))).map(named).collect();
        let program = rmt::load(&path, &defines).unwrap_or_else(|list| panic!("{}", list[0])).program;
        let mut native = Native::new(program).unwrap_or_else(|e| panic!("{e}"));
        native.set_session(1, Session { port: 0, truncate: 0 });
        let key = |v: u128| EntryKey::Exact(v);
        for (flow, rx) in (0..).zip(rx) {
            let tuple = [key(0x0a00_0002), key(0x0a00_0001), key(4000 + flow), key(80)];
            let args = [flow, 0, NET as u128, rx.wrapping_neg() as u128, mask as u128, 0, 0];
            native.table_add("flows", &tuple, 0, "rx_flow", &args).unwrap();
            let args = [tx as u128, NET as u128, 0];
            native.table_add("contexts", &[key(flow), key(0)], 0, "tx_flow", &args).unwrap();
            let options = if extensions.contains(&"SACK") { 1 } else { 0 };
            let headers = [2, 1, 0x0a00_0001, 0x0a00_0002, 80, 4000 + flow, options];
            native.table_add("headers", &[key(flow)], 0, "addresses", &headers).unwrap();
        }
        let count = native.program().registers.len();
        let registers = (0..rx.len() as u32).flat_map(|flow| (0..count).map(move |r| (r, flow))).collect();
        Flow { native, batch: Batch::default(), registers }
    }

    /// The place of the first flow's register among [`Registers`].
    pub(crate) fn place(&self, name: &str) -> usize {
        self.native.register(name).unwrap()
    }

    /// That of another flow.
    pub(crate) fn place_of(&self, name: &str, flow: usize) -> usize {
        self.place(name) + flow * self.native.program().registers.len()
    }

    /// The flow's stream, which begins at `first`, is records of this log.
    pub(crate) fn join(&mut self, flow: usize, log: u32, first: u32, record: u32) {
        let origin = first.wrapping_neg();
        let args = [log, origin, origin.wrapping_add(record - 1), record.wrapping_neg()].map(u128::from);
        self.native.table_add("logs", &[EntryKey::Exact(flow as u128)], 0, "appends", &args).unwrap();
    }

    pub(crate) fn read(&self) -> Registers {
        self.registers.iter().map(|(r, flow)| self.native.read(*r, *flow)).collect()
    }

    pub(crate) fn write(&mut self, state: &Registers) {
        for ((register, flow), words) in self.registers.iter().zip(state) {
            self.native.write(*register, *flow, *words);
        }
    }

    /// A packet through both halves.
    pub(crate) fn process(&mut self, port: u16, packet: &[u8], payload: u32) -> Out {
        let length = packet.len() + payload as usize;
        self.native.ingress([Input { port, queue: 0, bytes: packet, length }], &mut self.batch);
        let output = self.batch.outputs[0];
        if !output.forwarded {
            return Out::default();
        }
        assert!(!output.bypass, "nothing here is for the exception path");
        let head = self.batch.head(&output).to_vec();
        self.egress(output.port, &head)
    }

    /// A packet of the traffic manager, or a pseudo segment.
    pub(crate) fn egress(&mut self, port: u16, packet: &[u8]) -> Out {
        self.native.egress([Input::whole(port, packet)], &mut self.batch);
        let output = self.batch.outputs[0];
        let pseudo = self.batch.mirrors(&output).first().map(|copy| copy.front().to_vec());
        let sent = output.forwarded.then(|| (port, self.batch.head(&output).to_vec()));
        Out { sent, pseudo }
    }
}

fn sum(bytes: &[u8]) -> u16 {
    let total: u32 = bytes.chunks(2).map(|c| (c[0] as u32) << 8 | c[1] as u32).sum();
    ((total & 0xffff) + (total >> 16)) as u16
}

/// A segment's headers, of the first flow.
pub(crate) fn segment(seq: u32, ack: u32, window: u16, payload: u32) -> Vec<u8> {
    segment_of(0, seq, ack, window, payload)
}

/// A segment's headers.
pub(crate) fn segment_of(flow: u16, seq: u32, ack: u32, window: u16, payload: u32) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend((40 + payload as u16).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    let checksum = !sum(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    out.extend(ip);
    out.extend([(4000 + flow).to_be_bytes(), 80u16.to_be_bytes()].concat());
    out.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    out.extend([0x50, 0x10]);
    out.extend([window.to_be_bytes(), [0; 2], [0; 2]].concat());
    out
}

/// A descriptor: operation, flags, length, position, edge.
pub(crate) fn descriptor(op: u8, flags: u8, length: u16, position: u32, edge: u32) -> Vec<u8> {
    let mut out = vec![op, flags, 0, 0, 0, 0];
    out.extend(length.to_be_bytes());
    out.extend([0; 12]);
    out.extend([position, 0, edge, 0].map(u32::to_be_bytes).concat());
    out
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
