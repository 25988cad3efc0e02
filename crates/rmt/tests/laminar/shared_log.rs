//! The extension `SHARED_LOG`: places in the log, segment by segment. Then many flows over a bad network, whose records
//! must all be in the log, each whole, and each flow's in order.
use super::stream::{Random, byte};
use super::*;

const LOG: u32 = 7;
const RECORD: u32 = 64;
const FILL: u8 = 0x10;

/// `log_h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogHeader {
    offset: u32,
    before: u32,
    after: u32,
    place: u32,
}

/// `log_h` lies between the descriptor and the payload.
fn place_of(dma: &mut Dma) -> LogHeader {
    let head: Vec<u8> = dma.payload.drain(..16).collect();
    let word = |i: usize| u32::from_be_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
    LogHeader { offset: word(0), before: word(4), after: word(8), place: word(12) }
}

/// The flow's records, which begin at this sequence number, go to the log.
fn join(m: &mut Machine, flow: u16, first: u32) {
    let origin = first.wrapping_neg();
    let args = [LOG, origin, origin.wrapping_add(RECORD - 1), RECORD.wrapping_neg()].map(u128::from);
    m.table_add("logs", &[EntryKey::Exact(flow as u128)], 0, "appends", &args).unwrap();
}

fn logged(m: &mut Machine, seq: u32, len: usize) -> (Dma, LogHeader) {
    let mut dma = delivered(receive(m, &Seg::data(seq, len))).0.expect("delivered");
    let place = place_of(&mut dma);
    assert_eq!(dma.payload, vec![0xab; len]);
    (dma, place)
}

#[test]
fn segments_get_places_and_gaps_keep_theirs() {
    let mut m = with_state(1000, 10_000, &["SHARED_LOG"]);
    join(&mut m, FLOW, 1000);
    m.register_write("log_tail", LOG, &[640]).unwrap();
    let (dma, place) = logged(&mut m, 1000, 128);
    assert_eq!((dma.address, dma.flags & FILL), (640, 0));
    assert_eq!(place, LogHeader { offset: 0, before: 0, after: 128, place: 640 });
    // Half a record has a whole one's place.
    let (dma, place) = logged(&mut m, 1128, 32);
    assert_eq!((dma.address, place), (768, LogHeader { offset: 128, before: 128, after: 192, place: 768 }));
    // Its rest has a place already, which the host keeps.
    let (dma, place) = logged(&mut m, 1160, 32);
    assert_eq!((dma.flags & FILL, place), (FILL, LogHeader { offset: 160, before: 192, after: 192, place: 832 }));
    // A record is missing: it keeps its place before the next one.
    let (dma, place) = logged(&mut m, 1256, 64);
    assert_eq!((dma.address, dma.flags & FILL), (832 + 64, 0));
    assert_eq!(place, LogHeader { offset: 256, before: 192, after: 320, place: 832 });
    let (dma, place) = logged(&mut m, 1192, 64);
    assert_eq!((dma.flags & FILL, place.offset, place.before, place.after), (FILL, 192, 320, 320));
    assert_eq!(m.register_read("log_tail", LOG).unwrap(), [960]);
    // A duplicate changes nothing, and an acknowledgement goes to no log.
    assert_eq!(delivered(receive(&mut m, &Seg::data(1192, 64))).0, None);
    assert_eq!(m.register_read("log_tail", LOG).unwrap(), [960]);
    assert_eq!(register(&m, "log_reserved"), [320]);
}

#[test]
fn what_is_dropped_gets_no_place() {
    let mut m = with_state(1000, 10_000, &["SHARED_LOG"]);
    join(&mut m, FLOW, 1000);
    logged(&mut m, 2000, 64);
    assert_eq!(register(&m, "log_reserved"), [1088]);
    // It does not touch the one interval; then it is beyond the window.
    assert_eq!(delivered(receive(&mut m, &Seg::data(5000, 64))).0, None);
    assert_eq!(delivered(receive(&mut m, &Seg::data(11_000, 64))).0, None);
    assert_eq!(register(&m, "log_reserved"), [1088]);
    assert_eq!(m.register_read("log_tail", LOG).unwrap(), [1088]);
}

#[test]
fn other_flows_are_as_they_were() {
    let mut m = with_state(1000, 10_000, &["SHARED_LOG"]);
    let (dma, _) = delivered(receive(&mut m, &Seg::data(1000, 128)));
    let dma = dma.unwrap();
    assert_eq!((dma.address, dma.payload.len(), dma.flags), (BASE, 128, 0));
    assert_eq!(register(&m, "log_reserved"), [0]);
}

// ---- many flows ----

const FLOWS: u16 = 5;
const STREAM: u32 = 150 * RECORD;
const WINDOW: u32 = 2048;

/// A connection: its peer's state, and what the host does.
struct Writer {
    flow: u16,
    start: u32,
    acked: u32,
    next: u32,
    /// Where parts of its stream lie in the log: from this offset on, at this place.
    extents: Vec<(u32, u32)>,
    readable: u32,
    granted: u32,
}

struct Lab {
    m: Machine,
    random: Random,
    writers: Vec<Writer>,
    wire: Vec<(usize, Seg)>,
    pseudo: Vec<(usize, Queued)>,
    log: Vec<u8>,
}

fn content(flow: u16, offset: u32) -> u8 {
    byte(flow as u32 * 1_000_003 + offset)
}

impl Lab {
    fn new(seed: u64) -> Lab {
        let mut m = with_state(0, 0, &["SHARED_LOG", "SACK", "DELAYED_ACKS"]);
        let key = |v: u32| EntryKey::Exact(v as u128);
        let mut writers = Vec::new();
        for flow in 0..FLOWS {
            // Some wrap, and so does the log.
            let start = 0u32.wrapping_sub(3000 * flow as u32);
            let tuple = [key(0x0a00_0002), key(0x0a00_0001), key(4000 + flow as u32), key(80)];
            let delta = start.wrapping_neg();
            let args = [flow as u128, CONTEXT as u128, PORT_NET as u128, delta as u128, 0xffff, BASE as u128, 7];
            m.table_add("flows", &tuple, 0, "rx_flow", &args).unwrap();
            let window = [start as u128, start.wrapping_add(WINDOW) as u128];
            m.register_write("rx_window", flow as u32, &window).unwrap();
            m.register_write("rx_advertised", flow as u32, &window).unwrap();
            m.register_write("tx_window", flow as u32, &[ISS as u128, ISS as u128]).unwrap();
            m.table_add("contexts", &[key(flow as u32), key(CONTEXT as u32)], 0, "tx_flow", &[0, 8, 0]).unwrap();
            join(&mut m, flow, start);
            writers.push(Writer { flow, start, acked: 0, next: 0, extents: Vec::new(), readable: 0, granted: WINDOW });
        }
        m.register_write("log_tail", LOG, &[0u32.wrapping_sub(9000 / RECORD * RECORD) as u128]).unwrap();
        let log = vec![0; (FLOWS as u32 * STREAM) as usize];
        Lab { m, random: Random(seed * 2 + 1), writers, wire: Vec::new(), pseudo: Vec::new(), log }
    }

    fn transmit(&mut self, at: usize) {
        let most = 1 + self.random.below(300);
        let writer = &mut self.writers[at];
        let len = most.min(writer.granted.min(STREAM).saturating_sub(writer.next));
        if len == 0 {
            return;
        }
        let payload = (writer.next..writer.next + len).map(|offset| content(writer.flow, offset)).collect();
        let seg = Seg { seq: writer.start.wrapping_add(writer.next), payload, ..Seg::default() };
        writer.next += len;
        let copies = [1, 1, 1, 1, 1, 1, 0, 2][self.random.below(8) as usize];
        self.wire.extend(vec![(at, seg); copies]);
    }

    fn deliver(&mut self) {
        if self.wire.is_empty() {
            return;
        }
        let at = if self.random.chance(30) { self.random.below(self.wire.len() as u32) } else { 0 };
        let (at, seg) = self.wire.remove(at as usize);
        let mut frame = seg.frame();
        frame[34..36].copy_from_slice(&(4000 + self.writers[at].flow).to_be_bytes());
        let queued = self.m.ingress(PORT_NET, &frame).queued.expect("a flow's");
        let (dma, pseudo) = delivered(self.m.egress(&queued));
        self.pseudo.extend(pseudo.map(|pseudo| (at, pseudo)));
        if let Some(mut dma) = dma.filter(|dma| dma.length > 0) {
            let place = place_of(&mut dma);
            self.place(at, &dma, &place);
        }
    }

    /// The host: into the log by the data-path's address, or by what it kept of earlier places.
    fn place(&mut self, at: usize, dma: &Dma, place: &LogHeader) {
        let writer = &mut self.writers[at];
        if place.after != place.before {
            writer.extents.push((place.before, place.place));
        }
        let base = 0u32.wrapping_sub(9000 / RECORD * RECORD);
        for i in dma.skip.min(dma.length as u32)..dma.length as u32 {
            let offset = place.offset + i;
            let place = match dma.flags & FILL {
                0 => dma.address.wrapping_add(i),
                _ => {
                    let (from, place) = writer.extents.iter().rev().find(|(from, _)| *from <= offset).expect("a place");
                    place.wrapping_add(offset - from)
                }
            };
            self.log[place.wrapping_sub(base) as usize] = dma.payload[i as usize];
        }
        writer.readable = writer.readable.max(dma.position.wrapping_sub(writer.start).min(STREAM));
    }

    fn acknowledge(&mut self) {
        if self.pseudo.is_empty() {
            return;
        }
        let at = self.random.below(self.pseudo.len() as u32) as usize;
        let (at, pseudo) = self.pseudo.remove(at);
        if self.random.chance(20) {
            return;
        }
        if let Some(sent) = self.m.egress(&pseudo).sent {
            let word =
                |i: usize| u32::from_be_bytes([sent.data[i], sent.data[i + 1], sent.data[i + 2], sent.data[i + 3]]);
            let writer = &mut self.writers[at];
            writer.acked = writer.acked.max(word(14 + 20 + 8).wrapping_sub(writer.start).min(STREAM));
            writer.next = writer.next.max(writer.acked);
        }
    }

    /// The application gives all that it could read back.
    fn trim(&mut self, at: usize) {
        let writer = &mut self.writers[at];
        let gain = (writer.readable / RECORD * RECORD + WINDOW).saturating_sub(writer.granted);
        if gain > 0 {
            writer.granted += gain;
            let edge = writer.start.wrapping_add(writer.readable);
            let dma = Dma { position: gain, flow: writer.flow, edge, ..Dma::to(2) };
            from_host(&mut self.m, PORT_HOST, &dma, &[]).expect("a window update");
        }
    }

    fn run(mut self) -> (Vec<Writer>, Vec<u8>) {
        for _ in 0..400_000 {
            let at = self.random.below(FLOWS as u32) as usize;
            match self.random.below(20) {
                0..=6 => self.transmit(at),
                7..=12 => self.deliver(),
                13..=17 => self.acknowledge(),
                18 => self.trim(at),
                _ if self.random.chance(20) => self.writers[at].next = self.writers[at].acked,
                _ => {}
            }
            if self.writers.iter().all(|writer| writer.readable == STREAM) {
                return (self.writers, self.log);
            }
        }
        panic!("wedged: {:?}", self.writers.iter().map(|w| (w.next, w.acked, w.readable)).collect::<Vec<_>>());
    }
}

#[test]
fn every_record_of_every_flow_is_in_the_log_once_and_in_order() {
    let mut shuffled = 0;
    for seed in 0..6 {
        let (writers, log) = Lab::new(seed).run();
        let base = 0u32.wrapping_sub(9000 / RECORD * RECORD);
        let mut used = vec![false; (FLOWS as u32 * STREAM / RECORD) as usize];
        for writer in &writers {
            let mut last = None;
            for number in 0..STREAM / RECORD {
                let offset = number * RECORD;
                let (from, place) = writer.extents.iter().rev().find(|(from, _)| *from <= offset).unwrap();
                let at = place.wrapping_add(offset - from).wrapping_sub(base);
                let record = &log[at as usize..(at + RECORD) as usize];
                let expected: Vec<u8> = (offset..offset + RECORD).map(|o| content(writer.flow, o)).collect();
                assert_eq!(record, expected, "flow {} record {number}", writer.flow);
                assert!(!std::mem::replace(&mut used[(at / RECORD) as usize], true), "two records at {at}");
                assert!(last < Some(at), "a later record stands before an earlier one");
                shuffled += (last.is_some_and(|last| last + RECORD != at)) as u32;
                last = Some(at);
            }
        }
        assert!(used.iter().all(|used| *used), "the log has a hole");
    }
    assert!(shuffled > 300, "flows do not alternate: {shuffled}");
}
