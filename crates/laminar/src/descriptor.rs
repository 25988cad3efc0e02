//! `dma_h` of `p4/headers.p4`, as bytes: the messages between pipeline and host.

/// Bytes of a `dma_h`.
pub(crate) const DMA_LEN: usize = 36;

/// Ports of the pipeline.
pub(crate) const PORT_HOST: u16 = 64;
pub(crate) const PORT_CONTROL: u16 = 65;
pub(crate) const PORT_CPU: u16 = 66;
pub(crate) const PORT_TIMER: u16 = 6;
/// The host's one network port.
pub(crate) const PORT_NET: u16 = 8;

pub(crate) const DMA_TX: u8 = 1;
pub(crate) const DMA_SYNC: u8 = 2;
pub(crate) const DMA_GRANT: u8 = 3;
pub(crate) const DMA_RX: u8 = 4;

pub(crate) const FAST_RETRANSMIT: u8 = 0x01;
pub(crate) const BAD_ACK: u8 = 0x02;
pub(crate) const TX_NEW: u8 = 0x02;
pub(crate) const TIMEOUT: u8 = 0x04;
pub(crate) const ACK_DELAYED: u8 = 0x08;
pub(crate) const LOG_FILL: u8 = 0x10;
pub(crate) const DUP_ACK: u8 = 0x20;
pub(crate) const CHALLENGE: u8 = 0x40;

/// A `dma_h`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Dma {
    pub op: u8,
    pub flags: u8,
    pub context: u16,
    pub flow: u16,
    pub length: u16,
    pub skip: u32,
    pub address: u32,
    pub position: u32,
    pub una: u32,
    pub edge: u32,
    pub credits: u32,
}

#[inline]
fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Dma {
    /// In words; the last has four bytes too many.
    #[inline]
    pub(crate) fn bytes(&self) -> [[u8; 8]; DMA_LEN.div_ceil(8)] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let kind = u32::from(self.op) << 24 | u32::from(self.flags) << 16 | u32::from(self.context);
        let which = u32::from(self.flow) << 16 | u32::from(self.length);
        [
            pair(kind, which).to_be_bytes(),
            u64::from(self.skip).to_be_bytes(),
            pair(self.address, self.position).to_be_bytes(),
            pair(self.una, self.edge).to_be_bytes(),
            pair(self.credits, 0).to_be_bytes(),
        ]
    }

    /// Nothing where the bytes are too few.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Dma> {
        let bytes: &[u8; DMA_LEN] = bytes.first_chunk()?;
        Some(Dma {
            op: bytes[0],
            flags: bytes[1],
            context: half(bytes, 2),
            flow: half(bytes, 4),
            length: half(bytes, 6),
            skip: word(bytes, 12),
            address: word(bytes, 16),
            position: word(bytes, 20),
            una: word(bytes, 24),
            edge: word(bytes, 28),
            credits: word(bytes, 32),
        })
    }
}

/// A `log_h`: where payload has its place in a log. Offsets count bytes since the flow's first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogPlace {
    pub offset: u32,
    pub before: u32,
    pub after: u32,
    pub place: u32,
}

impl LogPlace {
    /// Of the headers that begin with a `dma_h`; nothing where none follows it.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<LogPlace> {
        let at = |word: usize| DMA_LEN + 4 * word;
        (bytes.len() >= at(4)).then(|| LogPlace {
            offset: word(bytes, at(0)),
            before: word(bytes, at(1)),
            after: word(bytes, at(2)),
            place: word(bytes, at(3)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_come_back() {
        let dma = Dma {
            op: 4,
            flags: 1,
            context: 2,
            flow: 3,
            length: 4,
            skip: 5,
            address: 6,
            position: 7,
            una: 8,
            edge: 9,
            credits: u32::MAX,
        };
        assert_eq!(Dma::parse(dma.bytes().as_flattened()), Some(dma));
        assert_eq!(Dma::parse(&[0; DMA_LEN - 1]), None);
    }
}
