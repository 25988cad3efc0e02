//! Bits of bytes, most significant first.

/// Bits of a packet as a number, most significant first; nothing beyond the end.
pub(super) fn bits(data: &[u8], offset: usize, width: u32) -> Option<u128> {
    let end = offset + width as usize;
    if end > data.len() * 8 {
        return None;
    }
    Some((offset..end).fold(0, |v, i| v << 1 | (data[i / 8] >> (7 - i % 8) & 1) as u128))
}

/// Numbers to bytes, most significant bit first; the last byte is filled with zeros.
#[derive(Default)]
pub(super) struct BitWriter {
    out: Vec<u8>,
    used: usize,
}

impl BitWriter {
    pub(super) fn put(&mut self, value: u128, width: u32) {
        for i in (0..width).rev() {
            if self.used % 8 == 0 {
                self.out.push(0);
            }
            let bit = (value >> i & 1) as u8;
            self.out[self.used / 8] |= bit << (7 - self.used % 8);
            self.used += 1;
        }
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.out
    }
}
