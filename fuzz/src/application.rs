//! A hostile application: any words in its rings, any values anywhere in its region, with a connection to itself open.
use crate::{Input, host};
use context::{Bump, Slot};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering::Relaxed;
use wire::Endpoint;

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 2);
const MOST: usize = 300;

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut sockets = host(input.byte());
    let listener = sockets.socket(2, 1 | 0o4000, 0).expect("a socket");
    sockets.bind(listener, Endpoint::v4(LOCAL, 80)).expect("a free port");
    sockets.listen(listener, 4).expect("a listener");
    let client = sockets.socket(2, 1 | 0o4000, 0).expect("a socket");
    let _ = sockets.connect(client, Endpoint::v4(LOCAL, 80));
    sockets.settle();
    let words = (sockets.stack.end.region.len() / 8).min(1 << 20) as u64;
    for _ in 0..MOST {
        if input.is_over() {
            break;
        }
        match input.byte() % 8 {
            0 | 1 => {
                // The kind of a request is a small number; slots are few.
                let kind = u64::from(input.byte() % 20) | u64::from(input.byte()) << 32;
                let mut request = [kind, 0, 0, 0, 0, 0, 0, 0];
                for word in &mut request[1..4] {
                    *word = small(&mut input);
                }
                let _ = sockets.stack.end.requests.push(request);
            }
            2 => {
                let bump = [small(&mut input), small(&mut input)];
                let _ = sockets.stack.end.bumps.push(bump);
            }
            3 => {
                // Of a slot that there may be, whose streams have ended and grown, or not; of what its buffers could
                // hold.
                let flags = u64::from(input.byte() % 16);
                let slot = Slot { index: (flags >> 2) as u32, generation: u16::from(input.byte() % 4) };
                let (tx_head, rx_head) = (input.word() & 0x3_ffff, input.word() & 0x3_ffff);
                let bump = Bump { slot, tx_head, rx_head, fin: flags & 1 != 0, ring: (flags >> 1 & 3) as u8 };
                let _ = sockets.stack.end.bumps.push(bump.to_words());
            }
            4 => {
                let request: [u64; 8] = std::array::from_fn(|_| input.long());
                let _ = sockets.stack.end.requests.push(request);
            }
            5 => {
                // The first lines hold the rings' positions and the doorbells.
                let at = u64::from(input.word());
                let at = if at & 1 == 0 { at / 2 % 512 } else { at / 2 % words };
                sockets.stack.end.region.u64_at(at as usize * 8).store(input.long(), Relaxed);
            }
            6 => {
                let then = sockets.stack.now() + (u64::from(input.word()) << 6);
                sockets.stack.run_until(then);
            }
            _ => {
                // It may read what it is sent, or not.
                let _ = sockets.stack.end.replies.pop();
                let _ = sockets.stack.end.completions.pop();
            }
        }
        sockets.stack.settle();
    }
    sockets.stack.leave().expect("nothing is left");
}

/// A number as descriptors have them: two halves, small more often than not.
fn small(input: &mut Input<'_>) -> u64 {
    match input.byte() {
        shape @ 0..=127 => u64::from(shape % 8) | u64::from(input.byte()) << 32,
        128..=191 => u64::from(input.byte()) | u64::from(input.word()) << 32,
        _ => input.long(),
    }
}
