//! Packet scripts about super-segments.
mod form;

use form::*;

/// What ends a super-segment ends what a receiver's GRO collects, as on Linux.
#[test]
fn a_super_segment_has_psh() {
    on_all("super_segment=65535", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, &[7; 20_000]).unwrap();
        let mut found = Vec::new();
        while found.iter().map(|(len, _)| len).sum::<usize>() < 20_000 {
            let next = s.next();
            s.send(segment(ACK, 1, next.seq + next.payload.len() as u32));
            found.push((next.payload.len(), next.pushes));
        }
        assert!(found.len() > 1 && found.iter().any(|(len, _)| *len > 1000), "{found:?}");
        for (len, pushes) in found {
            assert!(len <= 1000 || pushes, "{len} bytes");
        }
    });
}
