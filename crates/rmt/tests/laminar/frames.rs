//! Frames and descriptors as bytes, and back.

/// A TCP segment between 10.0.0.2:4000 and 10.0.0.1:80, towards the latter unless parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seg {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub ecn: u8,
    pub payload: Vec<u8>,
    /// Timestamps in a header of 32 bytes.
    pub stamps: bool,
    /// Options, of what the pipeline sent.
    pub options: Vec<u8>,
    /// Between 2001:db8::2 and 2001:db8::1.
    pub v6: bool,
}

/// The peer's and this end's address over IPv6.
pub(crate) const PEER_V6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0002;
pub(crate) const OWN_V6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;

impl Default for Seg {
    fn default() -> Self {
        Seg {
            seq: 0,
            ack: super::ISS,
            flags: 0x10,
            window: 15_000,
            ecn: 0,
            payload: Vec::new(),
            stamps: false,
            options: Vec::new(),
            v6: false,
        }
    }
}

pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let word = |c: &[u8]| (c[0] as u32) << 8 | *c.get(1).unwrap_or(&0) as u32;
    let mut s: u32 = bytes.chunks(2).map(word).sum();
    while s > 0xffff {
        s = (s & 0xffff) + (s >> 16);
    }
    s as u16
}

impl Seg {
    pub(crate) fn data(seq: u32, len: usize) -> Seg {
        Seg { seq, payload: vec![0xab; len], ..Seg::default() }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let tcp_len = 20 + 12 * self.stamps as usize + self.payload.len();
        if self.v6 {
            out.extend([0x86, 0xdd, 0x60, self.ecn << 4, 0, 0]);
            out.extend((tcp_len as u16).to_be_bytes());
            out.extend([6, 64]);
            out.extend([PEER_V6.to_be_bytes(), OWN_V6.to_be_bytes()].concat());
        } else {
            out.extend([8, 0]);
            let mut ip = vec![0x45, self.ecn];
            ip.extend((20 + tcp_len as u16).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
            let checksum = !sum(&ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            out.extend(ip);
        }
        out.extend(4000u16.to_be_bytes());
        out.extend(80u16.to_be_bytes());
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.push(if self.stamps { 8 } else { 5 } << 4);
        out.push(self.flags);
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0, 0, 0]);
        if self.stamps {
            out.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        }
        out.extend(&self.payload);
        out
    }

    /// A segment that the pipeline sent; both checksums must be right.
    pub(crate) fn parse(frame: &[u8]) -> Seg {
        assert_eq!(&frame[..12], &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        let v6 = frame[12..14] == [0x86, 0xdd];
        let half = |i: usize| u16::from_be_bytes([frame[i], frame[i + 1]]) as usize;
        let (addresses, tcp) = if v6 {
            assert_eq!((frame[14], &frame[16..18], &frame[20..22]), (0x60, &[0, 0][..], &[6, 64][..]));
            assert_eq!(frame[22..54], [OWN_V6.to_be_bytes(), PEER_V6.to_be_bytes()].concat());
            (&frame[22..54], &frame[54..54 + half(18)])
        } else {
            assert_eq!(frame[12..14], [8, 0]);
            assert_eq!(sum(&frame[14..34]), 0xffff, "IP checksum");
            assert_eq!(&frame[26..34], &[10, 0, 0, 1, 10, 0, 0, 2]);
            (&frame[26..34], &frame[34..14 + half(16)])
        };
        let pseudo = [addresses, &[0, 6], &(tcp.len() as u16).to_be_bytes(), tcp].concat();
        assert_eq!(sum(&pseudo), 0xffff, "TCP checksum");
        assert_eq!(&tcp[..4], &[0, 80, 15, 160]);
        let word = |i: usize| u32::from_be_bytes([tcp[i], tcp[i + 1], tcp[i + 2], tcp[i + 3]]);
        Seg {
            seq: word(4),
            ack: word(8),
            flags: tcp[13],
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            ecn: (if v6 { frame[15] >> 4 } else { frame[15] }) & 3,
            payload: tcp[(tcp[12] >> 4) as usize * 4..].to_vec(),
            stamps: false,
            options: tcp[20..(tcp[12] >> 4) as usize * 4].to_vec(),
            v6,
        }
    }
}

/// `dma_h`, and the payload behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dma {
    pub op: u8,
    pub flags: u8,
    pub context: u16,
    pub flow: u16,
    pub length: u16,
    pub sum: u16,
    pub skip: u32,
    pub address: u32,
    pub position: u32,
    pub una: u32,
    pub edge: u32,
    pub credits: u32,
    pub payload: Vec<u8>,
}

impl Dma {
    pub(crate) fn to(op: u8) -> Dma {
        Dma { op, context: super::CONTEXT, flow: super::FLOW, ..Dma::default() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = vec![self.op, self.flags];
        for v in [self.context, self.flow, self.length, self.sum, 0] {
            out.extend(v.to_be_bytes());
        }
        for v in [self.skip, self.address, self.position, self.una, self.edge, self.credits] {
            out.extend(v.to_be_bytes());
        }
        out
    }
}

pub(crate) fn parse_dma(d: &[u8]) -> Dma {
    let half = |i: usize| u16::from_be_bytes([d[i], d[i + 1]]);
    let word = |i: usize| u32::from_be_bytes([d[i], d[i + 1], d[i + 2], d[i + 3]]);
    Dma {
        op: d[0],
        flags: d[1],
        context: half(2),
        flow: half(4),
        length: half(6),
        sum: half(8),
        skip: word(12),
        address: word(16),
        position: word(20),
        una: word(24),
        edge: word(28),
        credits: word(32),
        payload: d[36..].to_vec(),
    }
}
