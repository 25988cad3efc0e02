//! One engine, and segments made by hand. Sequence numbers are relative: the next byte of each direction is 1000.
use super::{Config, Rng, Side, mac, tuple_over};
use context::Bump;
use engine::stream::{self, Stream};
use engine::{Command, ContextId, DropReason, Event, FlowId, Frame};
use std::sync::atomic::Ordering::Acquire;
use wire::checksum::Sum;
use wire::ip;
use wire::ipv4::{self, Ecn};
use wire::tcp::{self, Flags, Options, Timestamps};
use wire::{EtherType, Seq, ethernet};

pub(crate) const FLOW: FlowId = FlowId(5);
/// Relative number of the first byte in each direction.
pub(crate) const START: u32 = 1000;
pub(crate) const ACK: Flags = Flags::ACK;

/// A segment as it is on the wire, with relative numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seg {
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub len: u32,
    pub window: u16,
    pub timestamps: Option<Timestamps>,
    pub sack: Option<(u32, u32)>,
    /// SACK blocks behind the first.
    pub more: [Option<(u32, u32)>; 2],
    pub ecn: Ecn,
    /// The urgent pointer, which means something with URG.
    pub urgent: u16,
}

/// A segment to the engine.
pub(crate) fn seg(seq: u32, ack: u32, flags: Flags, len: u32) -> Seg {
    let (timestamps, sack, more) = (None, None, [None; 2]);
    Seg { seq, ack, flags, len, window: 1000, timestamps, sack, more, ecn: Ecn::NotEct, urgent: 0 }
}

pub(crate) struct Solo {
    pub side: Side,
    pub now: u64,
    config: Config,
}

impl Solo {
    pub(crate) fn new(config: Config) -> Solo {
        let mut side = Side::new(&config, true, vec![7; config.bytes], Vec::new());
        let now = 5_000_000_000;
        side.poll(now);
        Solo { side, now, config }
    }

    pub(crate) fn plain() -> Solo {
        Solo::new(Config { timestamps: false, mss: 1000, rx_bytes: 8192, wscale: 0, ..Config::clean(1) })
    }

    pub(crate) fn own(&self, relative: u32) -> Seq {
        Seq(self.config.iss) + 1 - START + relative
    }

    pub(crate) fn theirs(&self, relative: u32) -> Seq {
        self.own(relative) + 77
    }

    /// Byte `i` of the peer's stream.
    pub(crate) fn byte(i: u32) -> u8 {
        (i % 251) as u8
    }

    pub(crate) fn frame(&mut self, s: &Seg) -> Box<Frame> {
        let header = tcp::Header {
            src_port: 80,
            dst_port: 1000,
            seq: self.theirs(s.seq),
            ack: self.own(s.ack),
            flags: s.flags,
            window: s.window,
            options: Options {
                timestamps: s.timestamps,
                sack: [s.sack, s.more[0], s.more[1], None].map(|block| block.map(|(l, r)| (self.own(l), self.own(r)))),
                ..Options::default()
            },
        };
        let tuple = tuple_over(self.config.v6, true);
        let ends = (tuple.remote_ip, tuple.local_ip);
        let tcp_at = ethernet::HEADER_LEN + ip::header_len(tuple.local_ip);
        let payload_len = (header.len() + s.len as usize) as u16;
        let mut frame = self.side.pool.large();
        frame.resize(tcp_at + payload_len as usize);
        let bytes = frame.bytes_mut();
        let ethertype = if self.config.v6 { EtherType::Ipv6 } else { EtherType::Ipv4 };
        ethernet::Header { dst: mac(true), src: mac(false), ethertype }.emit(bytes);
        if let Some((remote, local)) = ends.0.as_v4().zip(ends.1.as_v4()) {
            let ip = ipv4::Header::new(ipv4::TCP, (remote, local), payload_len);
            ipv4::Header { ecn: s.ecn, id: 1, ..ip }.emit(&mut bytes[ethernet::HEADER_LEN..]);
        } else {
            ip::emit(ipv4::TCP, ends, 64, &mut bytes[ethernet::HEADER_LEN..]).unwrap();
            bytes[ethernet::HEADER_LEN + 1] = (s.ecn as u8) << 4;
        }
        let header_len = header.emit(&mut bytes[tcp_at..]);
        tcp::set_urgent_pointer(&mut bytes[tcp_at..], s.urgent);
        for (i, byte) in bytes[tcp_at + header_len..].iter_mut().enumerate() {
            *byte = Solo::byte(s.seq.wrapping_sub(START).wrapping_add(i as u32));
        }
        let mut sum = Sum::pseudo_header(ends.0, ends.1, ipv4::TCP, payload_len as u32);
        sum.add(&bytes[tcp_at..]);
        let field = tcp_at + tcp::CHECKSUM_AT;
        bytes[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
        frame
    }

    /// Bytes of a segment's headers without options.
    pub(crate) fn headers(&self) -> usize {
        ethernet::HEADER_LEN + ip::header_len(tuple_over(self.config.v6, true).local_ip) + tcp::HEADER_LEN
    }

    /// Frames arrive in one burst; returns what goes out in that round.
    pub(crate) fn receive(&mut self, segs: &[Seg]) -> Vec<Seg> {
        for s in segs {
            let frame = self.frame(s);
            self.side.rx.push(frame);
        }
        self.round()
    }

    /// A frame arrives with the bits of one byte inverted.
    pub(crate) fn receive_damaged(&mut self, s: &Seg, at: usize) -> Vec<Seg> {
        let mut frame = self.frame(s);
        frame.bytes_mut()[at] ^= 0xff;
        self.side.rx.push(frame);
        self.round()
    }

    pub(crate) fn command(&mut self, command: impl Into<Command<Stream>>) -> Vec<Seg> {
        self.side.commands.push(command.into());
        self.round()
    }

    /// The application writes `len` bytes, and perhaps closes.
    pub(crate) fn write(&mut self, len: u32, fin: bool) -> Vec<Seg> {
        let app = &mut self.side.app;
        app.tx.write(app.written, &vec![7; len as usize]);
        app.written += len;
        app.fin = fin;
        app.bump();
        self.round()
    }

    /// The application asks for a completion once all before a position was sent; the position of that completion.
    pub(crate) fn asks_until(&mut self, until: u32) -> Option<u32> {
        let app = &self.side.app;
        let (slot, rx_head) = (app.slot, app.read);
        let question = Bump { slot, tx_head: until, rx_head, fin: false, ring: Bump::UNTIL_SENT };
        self.side.app.end.bumps.push(question.to_words()).expect("room");
        self.round();
        self.reports_sent()
    }

    /// The position of the completion for sent bytes, where there is one.
    pub(crate) fn reports_sent(&mut self) -> Option<u32> {
        self.round();
        self.completion()?;
        let app = &self.side.app;
        Some(app.end.sent(app.slot.index).swap(0, Acquire)).filter(|sent| *sent > 0)
    }

    /// An engine reports how far it has sent once that is as far as its application asks, and not before.
    pub(crate) fn reports_how_far_it_has_sent(mut self) {
        self.receive(&[seg(START, START, ACK, 100)]);
        self.command(stream::Command::Window(FLOW, 1000));
        self.write(3000, false);
        self.reports_sent();
        assert_eq!(self.asks_until(1500), None, "the congestion window is 1000 bytes");
        self.receive(&[seg(START + 100, START + 1000, ACK, 0)]);
        assert_eq!(self.reports_sent(), Some(2000));
        assert_eq!(self.asks_until(2000), Some(2000), "that far it is already");
        assert_eq!(self.asks_until(2001), None);
        self.receive(&[seg(START + 100, START + 2000, ACK, 0)]);
        assert_eq!(self.reports_sent(), Some(3000));
        self.receive(&[seg(START + 100, START + 3000, ACK, 0)]);
        assert_eq!(self.reports_sent(), None, "once");
        self.write(10, true);
        assert_eq!(self.asks_until(3010), Some(3010), "a FIN is no byte");
        assert_eq!(self.asks_until(9000), None, "more than was written");
    }

    /// The application reads `len` bytes, which must be those that the peer sent.
    pub(crate) fn read(&mut self, len: u32) -> Vec<Seg> {
        let app = &mut self.side.app;
        let mut bytes = vec![0; len as usize];
        app.rx.read(app.read, &mut bytes);
        for (i, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, Solo::byte(app.read + i as u32), "byte {i} from {}", app.read);
        }
        app.read += len;
        app.bump();
        self.round()
    }

    /// The application's process writes `len` bytes, one after the other, and is gone, while the engine has other
    /// commands. Ends when the engine reports that it has taken what was left; returns how many bytes it had at that
    /// moment.
    pub(crate) fn leave(&mut self, len: u32) -> u32 {
        for _ in 0..len {
            let app = &mut self.side.app;
            app.tx.write(app.written, &[7]);
            app.written += 1;
            app.bump();
        }
        let before = (0..20).map(|_| Command::NextHop(FLOW, mac(false)));
        self.side.commands.extend(before.chain([Command::Drain(ContextId(1))]));
        for seed in 0..1000 {
            if !self.side.workers.is_empty() {
                self.side.poll_workers(self.now, &mut Rng(seed));
            }
            self.round();
            if self.events().contains(&Event::Drained(ContextId(1))) {
                let figures = self.side.stats.read();
                return figures.outstanding + figures.unsent;
            }
        }
        panic!("the engine waits for more than was left");
    }

    pub(crate) fn round(&mut self) -> Vec<Seg> {
        self.now += 1000;
        self.side.poll(self.now);
        let mut frames: Vec<_> = self.side.tx.drain(..).collect();
        frames.iter_mut().map(|frame| self.parse(frame)).collect()
    }

    pub(crate) fn wait(&mut self, nanos: u64) -> Vec<Seg> {
        self.now += nanos;
        self.round()
    }

    fn parse(&self, frame: &mut Frame) -> Seg {
        assert_eq!(frame.segment_size, 0);
        frame.complete_checksum();
        let bytes = frame.bytes();
        let ethernet = ethernet::Header::parse(bytes).unwrap();
        assert_eq!((ethernet.dst, ethernet.src), (mac(false), mac(true)));
        let packet = &bytes[ethernet::HEADER_LEN..];
        let (ip, ip_len) = ip::Header::parse(ethernet.ethertype, packet, packet.len()).unwrap();
        let tuple = tuple_over(self.config.v6, true);
        assert_eq!((ip.src, ip.dst, ip.hop_limit), (tuple.local_ip, tuple.remote_ip.in_zone(0), 64));
        let mut sum = Sum::pseudo_header(ip.src, ip.dst, ipv4::TCP, ip.payload_len as u32);
        sum.add(&packet[ip_len..]);
        assert_eq!(sum.finish(), 0, "checksum");
        let (tcp, tcp_len) = tcp::Header::parse(&packet[ip_len..]).unwrap();
        let block = |at: usize| tcp.options.sack[at].map(|(l, r)| (l - self.theirs(0), r - self.theirs(0)));
        Seg {
            seq: tcp.seq - self.own(0),
            ack: tcp.ack - self.theirs(0),
            flags: tcp.flags,
            len: ip.payload_len as u32 - tcp_len as u32,
            window: tcp.window,
            timestamps: tcp.options.timestamps,
            sack: block(0),
            more: [block(1), block(2)],
            ecn: ip.ecn,
            urgent: tcp::urgent_pointer(&packet[ip_len..]).unwrap(),
        }
    }

    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        self.side.drops.get(reason)
    }

    pub(crate) fn events(&mut self) -> Vec<Event<Stream>> {
        self.side.events.drain(..).collect()
    }

    /// The application makes the byte before a stream position urgent; a later bump reports that it is written.
    pub(crate) fn urge(&mut self, before: u32) {
        let (slot, rx_head) = (self.side.app.slot, self.side.app.read);
        let bump = Bump { slot, tx_head: before, rx_head, fin: false, ring: Bump::URGENT };
        self.side.app.end.bumps.push(bump.to_words()).expect("room");
    }

    /// The stream position of the urgent byte, where the last completion reports one.
    pub(crate) fn urgent(&mut self) -> Option<u32> {
        let mut last = None;
        while let Some(words) = self.side.app.end.completions.pop().unwrap() {
            last = Some(context::Completion::from_words(words).urgent);
        }
        last?.then(|| self.side.app.end.urgent(self.side.app.slot.index))
    }

    /// The application's last completion: received, acknowledged, end of stream.
    pub(crate) fn completion(&mut self) -> Option<(u32, u32, bool)> {
        let mut last = None;
        while let Some(words) = self.side.app.end.completions.pop().unwrap() {
            let completion = context::Completion::from_words(words);
            last = Some((completion.rx_tail, completion.tx_tail, completion.fin));
        }
        last
    }
}

/// The acknowledgments of these segments.
pub(crate) fn acks(sent: &[Seg]) -> Vec<u32> {
    sent.iter().map(|s| s.ack).collect()
}
