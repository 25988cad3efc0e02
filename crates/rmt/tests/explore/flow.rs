//! One flow of the compiled program: its registers as a value, and packets through it one by one.
use rmt::interp::Session;
use rmt::native::{Batch, EntryKey, Input, Native};
use std::path::Path;

pub const HOST: u16 = 64;
pub const CONTROL: u16 = 65;
pub const NET: u16 = 8;

/// The registers that are state, each with its words.
pub type Registers = Vec<[u32; 2]>;

pub struct Flow {
    native: Native,
    batch: Batch,
    registers: Vec<usize>,
}

/// What a packet became.
#[derive(Default)]
pub struct Out {
    /// What left, and by which port.
    pub sent: Option<(u16, Vec<u8>)>,
    /// The pseudo segment.
    pub pseudo: Option<Vec<u8>>,
}

impl Flow {
    /// `rx` is the sequence number of the receive stream's first byte, `mask` that of its buffer.
    pub fn new(extensions: &[&str], rx: u32, tx: u32, mask: u32) -> Flow {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4/laminar.p4");
        let named = |(name, value): (&str, &str)| (name.to_string(), value.to_string());
        let defines = [("FLOWS", "16"), ("RX_SCALE", "0"), ("NOTIFY_ACKS", "")];
        let defines: Vec<_> = defines.into_iter().chain(extensions.iter().map(|e| (*e, ""))).map(named).collect();
        let program = rmt::load(&path, &defines).unwrap_or_else(|list| panic!("{}", list[0])).program;
        let mut native = Native::new(program).unwrap_or_else(|e| panic!("{e}"));
        native.set_session(1, Session { port: 0, truncate: 0 });
        let key = |v: u128| EntryKey::Exact(v);
        let tuple = [key(0x0a00_0002), key(0x0a00_0001), key(4000), key(80)];
        let args = [0, 0, NET as u128, rx.wrapping_neg() as u128, mask as u128, 0, 0];
        native.table_add("flows", &tuple, 0, "rx_flow", &args).unwrap();
        native.table_add("contexts", &[key(0), key(0)], 0, "tx_flow", &[tx as u128, NET as u128, 0]).unwrap();
        let options = if extensions.contains(&"SACK") { 1 } else { 0 };
        let headers = [2, 1, 0x0a00_0001, 0x0a00_0002, 80, 4000, options];
        native.table_add("headers", &[key(0)], 0, "addresses", &headers).unwrap();
        let registers = (0..native.program().registers.len()).collect();
        Flow { native, batch: Batch::default(), registers }
    }

    /// The place of a register among [`Registers`].
    pub fn place(&self, name: &str) -> usize {
        self.native.register(name).unwrap()
    }

    pub fn read(&self) -> Registers {
        self.registers.iter().map(|r| self.native.read(*r, 0)).collect()
    }

    pub fn write(&mut self, state: &Registers) {
        for (register, words) in self.registers.iter().zip(state) {
            self.native.write(*register, 0, *words);
        }
    }

    /// A packet through both halves.
    pub fn process(&mut self, port: u16, packet: &[u8], payload: u32) -> Out {
        let length = packet.len() + payload as usize;
        self.native.ingress([Input { port, queue: 0, bytes: packet, length }], &mut self.batch);
        let output = self.batch.outputs[0];
        if !output.kept {
            return Out::default();
        }
        assert!(!output.bypass, "nothing here is for the exception path");
        let head = self.batch.head(&output).to_vec();
        self.egress(output.port, &head)
    }

    /// A packet of the traffic manager, or a pseudo segment.
    pub fn egress(&mut self, port: u16, packet: &[u8]) -> Out {
        self.native.egress([Input::whole(port, packet)], &mut self.batch);
        let output = self.batch.outputs[0];
        let pseudo = self.batch.mirrors(&output).first().map(|copy| copy.front().to_vec());
        let sent = output.kept.then(|| (port, self.batch.head(&output).to_vec()));
        Out { sent, pseudo }
    }
}

fn sum(bytes: &[u8]) -> u16 {
    let total: u32 = bytes.chunks(2).map(|c| (c[0] as u32) << 8 | c[1] as u32).sum();
    ((total & 0xffff) + (total >> 16)) as u16
}

/// A segment's headers.
pub fn segment(seq: u32, ack: u32, window: u16, payload: u32) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend((40 + payload as u16).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    let checksum = !sum(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    out.extend(ip);
    out.extend([4000u16.to_be_bytes(), 80u16.to_be_bytes()].concat());
    out.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    out.extend([0x50, 0x10]);
    out.extend([window.to_be_bytes(), [0; 2], [0; 2]].concat());
    out
}

/// A descriptor: operation, flags, length, position, edge.
pub fn descriptor(op: u8, flags: u8, length: u16, position: u32, edge: u32) -> Vec<u8> {
    let mut out = vec![op, flags, 0, 0, 0, 0];
    out.extend(length.to_be_bytes());
    out.extend([0; 12]);
    out.extend([position, 0, edge, 0].map(u32::to_be_bytes).concat());
    out
}

pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
