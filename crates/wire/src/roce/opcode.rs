//! Opcodes, and which extended headers follow each (IBTA 1.3, tables 38 and 39).

/// The service of an opcode: its upper three bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection (IBTA 1.3, annex A14).
    Xrc,
    /// Congestion notification (IBTA A17.9.3).
    Congestion,
}

/// What a packet does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Payload for a receive work request.
    Send,
    /// Payload for the memory that the message names.
    Write,
    /// Asks for memory.
    ReadRequest,
    /// Memory that was asked for.
    ReadResponse,
    /// Acknowledges, or refuses.
    Acknowledge,
    /// Acknowledges an atomic operation.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Notifies of congestion.
    Notify,
}

impl Operation {
    /// A responder sends it, to a requester.
    const fn is_response(self) -> bool {
        matches!(self, Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge)
    }
}

/// Where in its message a packet stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    Only,
}

impl Position {
    /// The position of packet `at` of `count`.
    pub const fn of(at: u32, count: u32) -> Position {
        Position::spanning(at, at + 1, count)
    }

    /// The position of the packets from `from` on, up to the one before `to`, of `count`.
    pub const fn spanning(from: u32, to: u32, count: u32) -> Position {
        match (from == 0, to >= count) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        }
    }

    /// The position of packet `at` of `count` that together stand in this one.
    pub const fn part(self, at: u32, count: u32) -> Position {
        let (before, behind) = (!self.begins() as u32, !self.ends() as u32);
        Position::spanning(before + at, before + at + 1, before + count + behind)
    }

    /// A message begins with it.
    pub const fn begins(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// A message ends with it.
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// Extended headers that can follow the base header, as bits.
const RETH: u16 = 1;
const AETH: u16 = 1 << 1;
const ATOMIC: u16 = 1 << 2;
const ATOMIC_ACK: u16 = 1 << 3;
const IMMEDIATE: u16 = 1 << 4;
const INVALIDATE: u16 = 1 << 5;
const DETH: u16 = 1 << 6;
/// Before all others.
const XRC: u16 = 1 << 7;
/// Payload may follow.
const PAYLOAD: u16 = 1 << 8;

/// Bytes of the extended headers, for each set of them.
const LENGTHS: [u8; 256] = {
    const EACH: [u8; 8] = [16, 4, 28, 8, 4, 4, 8, 4];
    let (mut lengths, mut set) = ([0; 256], 0);
    while set < 256 {
        let mut bit = 0;
        while bit < 8 {
            if set >> bit & 1 == 1 {
                lengths[set] += EACH[bit];
            }
            bit += 1;
        }
        set += 1;
    }
    lengths
};

/// An opcode of RC, UC, UD or XRC, or that of congestion notification packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

/// Operation, position and headers of the opcodes of connections, by the lower five bits.
const CONNECTED: [Option<(Operation, Position, u16)>; 24] = {
    use Operation::*;
    use Position::*;
    [
        Some((Send, First, PAYLOAD)),
        Some((Send, Middle, PAYLOAD)),
        Some((Send, Last, PAYLOAD)),
        Some((Send, Last, PAYLOAD | IMMEDIATE)),
        Some((Send, Only, PAYLOAD)),
        Some((Send, Only, PAYLOAD | IMMEDIATE)),
        Some((Write, First, PAYLOAD | RETH)),
        Some((Write, Middle, PAYLOAD)),
        Some((Write, Last, PAYLOAD)),
        Some((Write, Last, PAYLOAD | IMMEDIATE)),
        Some((Write, Only, PAYLOAD | RETH)),
        Some((Write, Only, PAYLOAD | RETH | IMMEDIATE)),
        Some((ReadRequest, Only, RETH)),
        Some((ReadResponse, First, PAYLOAD | AETH)),
        Some((ReadResponse, Middle, PAYLOAD)),
        Some((ReadResponse, Last, PAYLOAD | AETH)),
        Some((ReadResponse, Only, PAYLOAD | AETH)),
        Some((Acknowledge, Only, AETH)),
        Some((AtomicAcknowledge, Only, AETH | ATOMIC_ACK)),
        Some((CompareSwap, Only, ATOMIC)),
        Some((FetchAdd, Only, ATOMIC)),
        None,
        Some((Send, Last, PAYLOAD | INVALIDATE)),
        Some((Send, Only, PAYLOAD | INVALIDATE)),
    ]
};

/// Opcodes of unreliable connections that there are: SEND and WRITE without invalidation.
const UC_OPCODES: usize = 12;

/// What is known of an opcode.
#[derive(Clone, Copy)]
struct Row {
    is_known: bool,
    operation: Operation,
    position: Position,
    headers: u16,
}

impl Row {
    const UNKNOWN: Row = Row { is_known: false, operation: Operation::Notify, position: Position::Only, headers: 0 };

    const fn of(operation: Operation, position: Position, headers: u16) -> Row {
        Row { is_known: true, operation, position, headers }
    }
}

/// All of them, by their numbers: each packet asks several times.
static ROWS: [Row; 256] = {
    let mut rows = [Row::UNKNOWN; 256];
    let mut low = 0;
    while low < CONNECTED.len() {
        if let Some((operation, position, headers)) = CONNECTED[low] {
            rows[low] = Row::of(operation, position, headers);
            if low < UC_OPCODES {
                rows[low | 0x20] = rows[low];
            }
            // Requests name a shared receive queue; responses do not.
            let names_queue = if operation.is_response() { 0 } else { XRC };
            rows[low | 0xa0] = Row::of(operation, position, headers | names_queue);
        }
        low += 1;
    }
    rows[0x64] = Row::of(Operation::Send, Position::Only, PAYLOAD | DETH);
    rows[0x65] = Row::of(Operation::Send, Position::Only, PAYLOAD | DETH | IMMEDIATE);
    rows[0x81] = Row::of(Operation::Notify, Position::Only, PAYLOAD);
    rows
};

impl Opcode {
    /// A WRITE of one packet on a reliable connection, without immediate data.
    pub const WRITE_ONLY: Opcode = Opcode(0x0a);
    /// A SEND of one packet on a reliable connection, with payload only.
    pub const SEND_ONLY: Opcode = Opcode(0x04);
    /// Acknowledgement of a reliable connection.
    pub const ACKNOWLEDGE: Opcode = Opcode(0x11);
    /// Acknowledgement of an atomic operation.
    pub const ATOMIC_ACKNOWLEDGE: Opcode = Opcode(0x12);
    /// Request of a read.
    pub const READ_REQUEST: Opcode = Opcode(0x0c);
    /// Compare and swap.
    pub const COMPARE_SWAP: Opcode = Opcode(0x13);
    /// Fetch and add.
    pub const FETCH_ADD: Opcode = Opcode(0x14);
    /// A datagram.
    pub const UD_SEND: Opcode = Opcode(0x64);
    /// A datagram with immediate data.
    pub const UD_SEND_IMMEDIATE: Opcode = Opcode(0x65);
    /// Congestion notification packet (IBTA A17.9.3).
    pub const CNP: Opcode = Opcode(0x81);

    /// The opcode with this number; `None` where there is none, or none that is used here.
    #[inline]
    pub fn from_number(number: u8) -> Option<Opcode> {
        let known = ROWS[usize::from(number)].is_known;
        known.then_some(Opcode(number))
    }

    /// Its number.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Of a SEND's packet over a connection of this service; `tail`: what the last packet carries besides payload.
    pub const fn send(service: Service, position: Position, tail: Tail) -> Opcode {
        let low = match (position, tail) {
            (Position::First, _) => 0x00,
            (Position::Middle, _) => 0x01,
            (Position::Last, Tail::Nothing) => 0x02,
            (Position::Last, Tail::Immediate) => 0x03,
            (Position::Last, Tail::Invalidate) => 0x16,
            (Position::Only, Tail::Nothing) => 0x04,
            (Position::Only, Tail::Immediate) => 0x05,
            (Position::Only, Tail::Invalidate) => 0x17,
        };
        Opcode(service.base() | low)
    }

    /// Of a WRITE's packet; a WRITE invalidates nothing.
    pub const fn write(service: Service, position: Position, tail: Tail) -> Opcode {
        let immediate = matches!(tail, Tail::Immediate);
        let low = match position {
            Position::First => 0x06,
            Position::Middle => 0x07,
            Position::Last => 0x08 + immediate as u8,
            Position::Only => 0x0a + immediate as u8,
        };
        Opcode(service.base() | low)
    }

    /// Of a packet that answers a READ.
    pub const fn read_response(position: Position) -> Opcode {
        Opcode(match position {
            Position::First => 0x0d,
            Position::Middle => 0x0e,
            Position::Last => 0x0f,
            Position::Only => 0x10,
        })
    }

    /// The same over another service, whose opcodes have it.
    #[must_use]
    pub const fn over(self, service: Service) -> Opcode {
        Opcode(service.base() | self.0 & 0x1f)
    }

    /// Its service.
    #[inline]
    pub const fn service(self) -> Service {
        match self.0 >> 5 {
            0 => Service::Rc,
            1 => Service::Uc,
            3 => Service::Ud,
            5 => Service::Xrc,
            _ => Service::Congestion,
        }
    }

    // Meets IBTA: 9.3-a.
    #[inline]
    fn row(self) -> Row {
        ROWS[usize::from(self.0)]
    }

    /// What it does.
    #[inline]
    pub fn operation(self) -> Operation {
        self.row().operation
    }

    /// Where in its message it stands.
    #[inline]
    pub fn position(self) -> Position {
        self.row().position
    }

    #[inline]
    fn has(self, header: u16) -> bool {
        self.row().headers & header != 0
    }

    /// An XRCETH comes first: the shared receive queue.
    #[inline]
    pub fn has_xrc(self) -> bool {
        self.has(XRC)
    }

    /// A RETH follows: address, key, length.
    #[inline]
    pub fn has_reth(self) -> bool {
        self.has(RETH)
    }

    /// An AETH follows: syndrome and message number.
    #[inline]
    pub fn has_aeth(self) -> bool {
        self.has(AETH)
    }

    /// An AtomicETH follows.
    #[inline]
    pub fn has_atomic(self) -> bool {
        self.has(ATOMIC)
    }

    /// An AtomicAckETH follows the AETH.
    #[inline]
    pub fn has_atomic_ack(self) -> bool {
        self.has(ATOMIC_ACK)
    }

    /// Immediate data are the last header.
    #[inline]
    pub fn has_immediate(self) -> bool {
        self.has(IMMEDIATE)
    }

    /// A key to invalidate is the last header.
    #[inline]
    pub fn has_invalidate(self) -> bool {
        self.has(INVALIDATE)
    }

    /// A DETH follows: queue key and source queue pair.
    #[inline]
    pub fn has_deth(self) -> bool {
        self.has(DETH)
    }

    /// It may have payload.
    #[inline]
    pub fn has_payload(self) -> bool {
        self.has(PAYLOAD)
    }

    /// A responder sends it, to a requester.
    #[inline]
    pub fn is_response(self) -> bool {
        self.operation().is_response()
    }

    /// Bytes of the extended headers.
    #[inline]
    pub fn extended_len(self) -> usize {
        LENGTHS[usize::from(self.row().headers & !PAYLOAD)].into()
    }
}

/// What the last packet of a message carries besides payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    Nothing,
    /// Immediate data.
    Immediate,
    /// A key that is invalidated.
    Invalidate,
}

impl Service {
    const fn base(self) -> u8 {
        match self {
            Service::Rc => 0,
            Service::Uc => 1 << 5,
            Service::Ud => 3 << 5,
            Service::Congestion => 4 << 5,
            Service::Xrc => 5 << 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_architecture() {
        let known = (0..=u8::MAX).filter(|number| Opcode::from_number(*number).is_some()).count();
        assert_eq!(known, 23 + 12 + 3 + 23);
        let rc = |position, tail| Opcode::send(Service::Rc, position, tail).number();
        assert_eq!([rc(Position::Only, Tail::Nothing), rc(Position::Last, Tail::Invalidate)], [0x04, 0x16]);
        let uc = Opcode::write(Service::Uc, Position::Only, Tail::Immediate);
        assert_eq!((uc.number(), uc.service(), uc.has_reth(), uc.has_immediate()), (0x2b, Service::Uc, true, true));
        assert_eq!(Opcode::send(Service::Ud, Position::Only, Tail::Immediate), Opcode::UD_SEND_IMMEDIATE);
        for number in [0x15, 0x18, 0x36, 0x2c, 0x60, 0x80, 0xb5, 0xb8, 0xff] {
            assert_eq!(Opcode::from_number(number), None);
        }
    }

    // Checks IBTA: 9.3-a.
    #[test]
    fn each_opcode_implies_its_headers() {
        let len = |number| Opcode::from_number(number).unwrap().extended_len();
        assert_eq!(
            [0x00, 0x05, 0x06, 0x0b, 0x0c, 0x0d, 0x0e, 0x11, 0x12, 0x13].map(len),
            [0, 4, 16, 20, 16, 4, 0, 4, 12, 28]
        );
        assert_eq!([0x16, 0x64, 0x65, 0x81].map(len), [4, 8, 12, 0]);
        assert_eq!([0xa1, 0xab, 0xac, 0xad, 0xb1, 0xb2, 0xb3].map(len), [4, 24, 20, 4, 4, 12, 32]);
        let xrc = Opcode::READ_REQUEST.over(Service::Xrc);
        assert!((xrc.number(), xrc.service()) == (0xac, Service::Xrc) && xrc.has_xrc() && xrc.has_reth());
        assert!(Opcode::ACKNOWLEDGE.is_response() && !Opcode::READ_REQUEST.is_response());
        let made = [Position::First, Position::Middle, Position::Last, Position::Only].map(Opcode::read_response);
        assert!(made.iter().all(|opcode| opcode.operation() == Operation::ReadResponse));
        assert_eq!(made.map(Opcode::position), [Position::First, Position::Middle, Position::Last, Position::Only]);
    }
}
