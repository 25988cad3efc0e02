//! The XDP program: which frames are the host's, and which the kernel's.
use std::net::IpAddr;
use std::os::fd::RawFd;
use wire::IpAddress;

/// Instructions with jumps to the two ends, and to what follows a comparison.
pub(super) struct Code {
    words: Vec<u64>,
    /// Jumps to the end where the frame is the host's, and to the one where it is the kernel's.
    to_host: Vec<usize>,
    to_kernel: Vec<usize>,
}

// Operations of linux/bpf.h.
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const MOVE: u8 = 0xbf;
const MOVE_CONSTANT: u8 = 0xb7;
const ADD_CONSTANT: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_ABOVE: u8 = 0x2d;
const JUMP_NOT_EQUAL: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_MAP: u8 = 0x18;

// Registers: what calls return; the arguments of a call; the context; and what is kept here. The first argument is the
// context at the beginning.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const CONTEXT: u8 = 6;
const FRAME: u8 = 7;
const END: u8 = 8;
const SCRATCH: u8 = 4;
const TYPE: u8 = 5;

// Places in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;

// Of a frame without a VLAN tag: its type, and where its addresses are.
const ETHERTYPE: i16 = 12;
const TAG: i32 = 4;
const IPV4_DESTINATION: i16 = 30;
const ARP_TARGET: i16 = 38;
const IPV6_DESTINATION: i16 = 38;

impl Code {
    /// All frames are the host's.
    pub(super) fn all() -> Code {
        let mut code = Code::begin();
        code.jump_to_host();
        code
    }

    /// Frames to these addresses are the host's, and so are questions and answers about them (ARP; the groups in which
    /// neighbours ask for an IPv6 address). One VLAN tag before them does not matter.
    pub(super) fn of(addresses: &[IpAddress]) -> Code {
        let mut code = Code::begin();
        code.op(LOAD_WORD, FRAME, CONTEXT, DATA, 0);
        code.op(LOAD_WORD, END, CONTEXT, DATA_END, 0);
        code.needs(i32::from(ETHERTYPE) + 2 + TAG);
        code.op(LOAD_HALF, TYPE, FRAME, ETHERTYPE, 0);
        // Over the next two where there is no tag.
        code.op(JUMP_NOT_EQUAL, TYPE, 0, 2, ethertype(0x8100));
        code.op(LOAD_HALF, TYPE, FRAME, ETHERTYPE + TAG as i16, 0);
        code.op(ADD_CONSTANT, FRAME, 0, 0, TAG);
        let groups = addresses.iter().filter(|address| !address.is_v4()).map(|address| address.solicited_node());
        let all: Vec<IpAddr> = addresses.iter().copied().chain(groups).map(IpAddress::ip).collect();
        let v4: Vec<[u8; 4]> = all.iter().filter_map(v4_octets).collect();
        let v6: Vec<[u8; 16]> = all.iter().filter_map(v6_octets).collect();
        code.where_type_is(0x0800, |code| code.match_any(IPV4_DESTINATION, &v4));
        code.where_type_is(0x0806, |code| code.match_any(ARP_TARGET, &v4));
        code.where_type_is(0x86dd, |code| code.match_any(IPV6_DESTINATION, &v6));
        code.jump_to_kernel();
        code
    }

    /// The whole program, with the map of sockets.
    pub(super) fn with_map(&self, map: RawFd) -> Vec<u64> {
        let mut words = self.words.clone();
        let host = words.len();
        let redirect = [
            instruction(LOAD_WORD, R2, CONTEXT, RX_QUEUE_INDEX, 0),
            // In two instructions: the second source register marks a map's descriptor.
            instruction(LOAD_MAP, R1, 1, 0, map),
            0,
            instruction(MOVE_CONSTANT, R3, 0, 0, XDP_PASS),
            instruction(CALL, 0, 0, 0, REDIRECT_MAP),
            instruction(EXIT, 0, 0, 0, 0),
        ];
        words.extend(redirect);
        let kernel = words.len();
        words.extend([instruction(MOVE_CONSTANT, R0, 0, 0, XDP_PASS), instruction(EXIT, 0, 0, 0, 0)]);
        for (jumps, end) in [(&self.to_host, host), (&self.to_kernel, kernel)] {
            for at in jumps {
                words[*at] = with_offset(words[*at], end - at - 1);
            }
        }
        // Code that nobody reaches is refused.
        if self.to_kernel.is_empty() {
            words.truncate(kernel);
        }
        words
    }

    fn begin() -> Code {
        let mut code = Code { words: Vec::new(), to_host: Vec::new(), to_kernel: Vec::new() };
        code.op(MOVE, CONTEXT, R1, 0, 0);
        code
    }

    fn op(&mut self, operation: u8, to: u8, from: u8, offset: i16, constant: i32) {
        self.words.push(instruction(operation, to, from, offset, constant));
    }

    /// A frame that is shorter is the kernel's.
    fn needs(&mut self, bytes: i32) {
        self.op(MOVE, SCRATCH, FRAME, 0, 0);
        self.op(ADD_CONSTANT, SCRATCH, 0, 0, bytes);
        self.to_kernel.push(self.words.len());
        self.op(JUMP_ABOVE, SCRATCH, END, 0, 0);
    }

    fn jump_to_host(&mut self) {
        self.to_host.push(self.words.len());
        self.op(JUMP, 0, 0, 0, 0);
    }

    fn jump_to_kernel(&mut self) {
        self.to_kernel.push(self.words.len());
        self.op(JUMP, 0, 0, 0, 0);
    }

    /// What is done with frames of a type.
    fn where_type_is(&mut self, kind: u16, act: impl FnOnce(&mut Code)) {
        let at = self.words.len();
        self.op(JUMP_NOT_EQUAL, TYPE, 0, 0, ethertype(kind));
        act(self);
        self.words[at] = with_offset(self.words[at], self.words.len() - at - 1);
    }

    /// The host's, where one of these addresses stands there; the kernel's otherwise.
    fn match_any<const BYTES: usize>(&mut self, at: i16, addresses: &[[u8; BYTES]]) {
        if !addresses.is_empty() {
            self.needs(i32::from(at) + BYTES as i32);
        }
        for address in addresses {
            let words = address.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
            // Past this address, where a word differs.
            let end = self.words.len() + 2 * words.len() + 1;
            for (word, place) in words.zip((at..).step_by(4)) {
                self.op(LOAD_WORD, SCRATCH, FRAME, place, 0);
                let offset = end - self.words.len() - 1;
                self.op(JUMP_NOT_EQUAL, SCRATCH, 0, offset as i16, i32::from_ne_bytes(word));
            }
            self.jump_to_host();
        }
        self.jump_to_kernel();
    }
}

fn v4_octets(address: &IpAddr) -> Option<[u8; 4]> {
    if let IpAddr::V4(address) = address { Some(address.octets()) } else { None }
}

fn v6_octets(address: &IpAddr) -> Option<[u8; 16]> {
    if let IpAddr::V6(address) = address { Some(address.octets()) } else { None }
}

/// As a load of two bytes finds it in a frame.
fn ethertype(kind: u16) -> i32 {
    u16::from_ne_bytes(kind.to_be_bytes()).into()
}

/// struct bpf_insn: operation, registers (source in the high half), offset, constant.
fn instruction(operation: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    let [a, b] = offset.to_ne_bytes();
    let [c, d, e, f] = constant.to_ne_bytes();
    u64::from_ne_bytes([operation, from << 4 | to, a, b, c, d, e, f])
}

fn with_offset(word: u64, offset: usize) -> u64 {
    let mut bytes = word.to_ne_bytes();
    bytes[2..4].copy_from_slice(&(offset as i16).to_ne_bytes());
    u64::from_ne_bytes(bytes)
}
