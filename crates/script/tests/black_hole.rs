//! Packet scripts about paths that drop large packets and report nothing (RFC 4821).
mod form;

use form::*;
use libc::c_int;

/// A way to the peer.
#[derive(Clone, Copy)]
struct Path {
    /// Most payload bytes of a segment that it carries.
    most: usize,
    /// It carries nothing before this time, seconds after the first segment.
    down_s: i64,
}

/// Payload bytes of a full segment.
const FULL: usize = 1400;
const DATA: usize = 120_000;
/// Milliseconds for each segment.
const ROUND_TRIP: u32 = 10;

/// The peer opens a connection. The host sends over this path, and the peer acknowledges what arrives in order. Returns
/// the payload bytes of the segments that the host sent, until all has arrived or it gives up.
fn transfer(s: &mut Script, listener: c_int, path: Path) -> Vec<usize> {
    s.send(segment(SYN, 0, 0).mss(FULL as u16));
    s.expect(segment(SYN | ACK, 0, 1));
    s.send(segment(ACK, 1, 1));
    let fd = s.accept(listener).unwrap();
    s.write(fd, &[7; DATA]).unwrap();
    let (mut next, mut sent, first) = (1, Vec::new(), s.now_us());
    while next <= DATA as u32 && sent.len() < 500 {
        let found = s.next();
        let len = found.payload.len();
        if len == 0 {
            break;
        }
        sent.push(len);
        if len <= path.most && s.at_us - first >= path.down_s * 1_000_000 {
            s.sleep_ms(ROUND_TRIP);
            next = if found.seq <= next { next.max(found.seq + len as u32) } else { next };
            s.send(segment(ACK, 1, next));
        }
    }
    s.send(segment(FIN | ACK, 1, next));
    while s.next().ack != 2 {}
    s.send(segment(RST, 2, 0));
    s.close(fd);
    sent
}

const FLAGS: &str = "min_rto_ms=1000,tx_bytes=262144,black_hole_detection=true";

// Checks RFC 4821: 7.2-a, 7.7-a, 7.7-b.
#[test]
fn a_path_that_drops_full_segments_gets_smaller_ones() {
    for most in [FULL - 1, 1000] {
        on_all(FLAGS, |s| {
            let listener = s.listen();
            // Each link carries 1280 bytes of IPv6, and 576 of IPv4.
            let path = Path { most: if s.largest_mss() == 1440 { most.max(1220) } else { most }, down_s: 0 };
            let sent = transfer(s, listener, path);
            let end = &sent[sent.len() - 20..];
            assert!(end.iter().all(|len| *len <= path.most), "{sent:?}");
            // Packets of 1024 bytes, of IPv6 1280.
            let base = if s.largest_mss() == 1440 { 1220 } else { 984 };
            assert_eq!(sent.iter().find(|len| **len < FULL), Some(&base), "{sent:?}");
            let large = sent.iter().filter(|len| **len > path.most).count();
            assert!((4..40).contains(&large), "{sent:?}");
            s.next_peer();
            let sent = transfer(s, listener, path);
            assert!(sent.iter().all(|len| *len <= path.most), "later connections begin with smaller ones: {sent:?}");
        });
    }
}

/// What full segments could not pass for a while.
#[test]
fn an_outage_leaves_segments_full() {
    on_all(FLAGS, |s| {
        let listener = s.listen();
        let sent = transfer(s, listener, Path { most: FULL, down_s: 20 });
        assert!(sent.iter().any(|len| (100..FULL).contains(len)), "smaller ones were tried: {sent:?}");
        assert!(sent[sent.len() - 15..sent.len() - 1].iter().all(|len| *len == FULL), "{sent:?}");
        s.next_peer();
        let sent = transfer(s, listener, Path { most: FULL, down_s: 0 });
        assert!(sent[..sent.len() - 1].iter().all(|len| *len == FULL), "{sent:?}");
    });
}
