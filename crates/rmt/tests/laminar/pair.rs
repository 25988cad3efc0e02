//! Two pipelines, one at each end of a network that loses and reorders: data one way, acknowledgements the other,
//! credits, fast retransmissions and timeouts.
use super::stream::{Random, byte};
use super::*;

const RING: u32 = 16_384;
const STREAM: u32 = 200_000;
const MSS: u32 = 1461;

const FAST_RETRANSMIT: u8 = 1;

/// A pipeline whose peer's scale is that of this program.
fn end() -> Machine {
    let mut m = with_state(ISS, RING, &[]);
    let key = |v: u32| EntryKey::Exact(v as u128);
    let four_tuple = [key(0x0a00_0002), key(0x0a00_0001), key(4000), key(80)];
    let delta = ISS.wrapping_neg() as u128;
    let args = [FLOW as u128, CONTEXT as u128, PORT_NET as u128, delta, RING as u128 - 1, BASE as u128, 7];
    m.table_add("flows", &four_tuple, 0, "rx_flow", &args).unwrap();
    m.register_write("tx_edge", FLOW as u32, &[(ISS + RING) as u128]).unwrap();
    m
}

struct Pair {
    sender: Machine,
    receiver: Machine,
    random: Random,
    loss: u32,
    reorder: u32,
    /// Stream positions: what the sending host gives next, and what was read.
    head: u32,
    read: u32,
    ring: Vec<u8>,
    readable: u32,
    data: Vec<Seg>,
    acks: Vec<Seg>,
    fast: u32,
}

impl Pair {
    fn new(seed: u64, loss: u32, reorder: u32) -> Pair {
        Pair {
            sender: end(),
            receiver: end(),
            random: Random(seed * 2 + 1),
            loss,
            reorder,
            head: 0,
            read: 0,
            ring: vec![0; RING as usize],
            readable: 0,
            data: Vec::new(),
            acks: Vec::new(),
            fast: 0,
        }
    }

    /// Stream position of the oldest byte not acknowledged.
    fn una(&self) -> u32 {
        register(&self.sender, "tx_window")[0] - ISS
    }

    fn transmit(&mut self) {
        let edge = register(&self.sender, "tx_edge")[0] - ISS;
        let len = (1 + self.random.below(MSS)).min(STREAM.min(edge).saturating_sub(self.head));
        if len == 0 || register(&self.sender, "tx_credits")[0] == 0 {
            return;
        }
        let payload: Vec<u8> = (self.head..self.head + len).map(byte).collect();
        let sum = frames::sum(&payload);
        let dma = Dma { position: self.head, length: len as u16, sum, ..Dma::to(1) };
        if let Some(frame) = from_host(&mut self.sender, PORT_HOST, &dma, &payload) {
            let seg = Seg::parse(&frame);
            assert_eq!((seg.seq, &seg.payload), (ISS + self.head, &payload));
            if !self.random.chance(self.loss) {
                self.data.push(seg);
            }
        }
        self.head += len;
    }

    fn pick(&mut self, length: usize) -> usize {
        if self.random.chance(self.reorder) { self.random.below(length as u32) as usize } else { 0 }
    }

    fn receive(&mut self) {
        if self.data.is_empty() {
            return;
        }
        let at = self.pick(self.data.len());
        let seg = Seg { ecn: 0, ..self.data.remove(at) };
        let (dma, pseudo) = delivered(super::receive(&mut self.receiver, &seg));
        if let Some(dma) = dma {
            for i in dma.skip.min(dma.length as u32)..dma.length as u32 {
                self.ring[((dma.address - BASE + i) % RING) as usize] = dma.payload[i as usize];
            }
            self.readable = self.readable.max(dma.position - ISS);
        }
        if let Some(ack) = pseudo.and_then(|p| acknowledge(&mut self.receiver, &p)) {
            if !self.random.chance(self.loss) {
                self.acks.push(ack);
            }
        }
    }

    fn acknowledgement(&mut self) {
        if self.acks.is_empty() {
            return;
        }
        let at = self.pick(self.acks.len());
        let ack = self.acks.remove(at);
        if let (Some(dma), None) = delivered(super::receive(&mut self.sender, &ack)) {
            assert_eq!(dma.flags, FAST_RETRANSMIT);
            self.head = dma.una - ISS;
            self.fast += 1;
        }
        self.head = self.head.max(self.una());
    }

    fn read(&mut self) {
        let n = (self.readable - self.read).min(self.random.below(RING));
        for p in self.read..self.read + n {
            assert_eq!(self.ring[(p % RING) as usize], byte(p), "byte {p}");
        }
        self.read += n;
        if n > 0 {
            let sync = Dma { position: n, edge: ISS + self.readable, ..Dma::to(2) };
            let update = from_host(&mut self.receiver, PORT_HOST, &sync, &[]).unwrap();
            self.acks.push(Seg::parse(&update));
        }
    }

    fn run(mut self) -> u32 {
        let tick = [0, 0, 0, 0, 0, FLOW as u8];
        for step in 0..200_000 {
            match self.random.below(8) {
                0..=2 => self.transmit(),
                3..=4 => self.receive(),
                5 => self.acknowledgement(),
                6 => self.read(),
                _ => {
                    let queued = self.sender.ingress(PORT_TIMER, &tick).queued.unwrap();
                    self.sender.egress(&queued);
                }
            }
            if self.loss > 0 && step % 1000 == 999 {
                // A retransmission timeout.
                self.head = self.una();
            }
            if self.read == STREAM && self.una() == STREAM {
                return self.fast;
            }
        }
        panic!("wedged: head {} una {} readable {} read {}", self.head, self.una(), self.readable, self.read);
    }
}

#[test]
fn in_order() {
    assert_eq!(Pair::new(1, 0, 0).run(), 0, "no retransmission without a reason");
}

#[test]
fn with_loss_and_reordering() {
    let fast: u32 = (0..10).map(|seed| Pair::new(seed, 3, 0).run() + Pair::new(seed, 2, 20).run()).sum();
    assert!(fast > 0, "losses are found by duplicate acknowledgements");
}
