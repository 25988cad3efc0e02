//! Events of the two kinds of pipes: completion channels, and the pipe of asynchronous events.
//!
//! The daemon's end of a pipe does not wait: what finds it full is lost. A pipe holds thousands of events, so a program
//! loses some only where it never reads.
use crate::{AsyncEvent, Number};

/// The number of a completion queue, in a completion channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelMessage(pub Number);

impl ChannelMessage {
    /// Bytes of a message.
    pub const BYTES: usize = 4;

    /// As bytes of the pipe, in the machine's order.
    pub fn encode(self) -> [u8; ChannelMessage::BYTES] {
        self.0.to_ne_bytes()
    }

    /// Any bytes are a message.
    pub fn decode(bytes: [u8; ChannelMessage::BYTES]) -> ChannelMessage {
        ChannelMessage(u32::from_ne_bytes(bytes))
    }
}

/// What happened, and to which object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncMessage {
    /// What.
    pub event: AsyncEvent,
    /// To which: the number of a queue pair, a completion queue or an SRQ, by the event; 0 for the device.
    pub number: Number,
}

impl AsyncMessage {
    /// Bytes of a message.
    pub const BYTES: usize = 8;

    /// As bytes of the pipe: the event's code, three zeros, the number in the machine's order.
    pub fn encode(self) -> [u8; AsyncMessage::BYTES] {
        let mut bytes = [0; AsyncMessage::BYTES];
        bytes[0] = self.event.code();
        bytes[4..].copy_from_slice(&self.number.to_ne_bytes());
        bytes
    }

    /// Reads a message; `None` for an event that there is not.
    pub fn decode(bytes: [u8; AsyncMessage::BYTES]) -> Option<AsyncMessage> {
        let [code, _, _, _, number @ ..] = bytes;
        Some(AsyncMessage { event: AsyncEvent::from_code(code)?, number: u32::from_ne_bytes(number) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        for event in AsyncEvent::ALL {
            let sent = AsyncMessage { event: *event, number: 0x12_3456 };
            assert_eq!(AsyncMessage::decode(sent.encode()), Some(sent));
        }
        assert_eq!(AsyncMessage::decode([7, 0, 0, 0, 1, 0, 0, 0]), None);
        assert_eq!(ChannelMessage::decode(ChannelMessage(u32::MAX).encode()), ChannelMessage(u32::MAX));
    }
}
