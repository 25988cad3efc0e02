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

/// With `MSG_EOR`, the bytes of a later call are not in the last segment of an earlier one.
#[test]
fn a_record_ends_a_segment() {
    on_flextoe("min_rto_ms=1000,super_segment=65535", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        // The congestion window is full, so all of the rest waits.
        s.write(fd, &[1; 10_000]).unwrap();
        s.expect(segment(ACK, 1, 1).payload(&[1; 10_000]));
        s.write(fd, &[2; 300]).unwrap();
        for record in 3..6 {
            s.send_with(fd, &[record; 400], libc::MSG_EOR).unwrap();
        }
        s.write(fd, &[6; 1500]).unwrap();
        s.send(segment(ACK, 1, 10_001));
        let sent: Vec<_> = (0..4).map(|_| s.next()).map(|next| (next.payload.len(), next.pushes)).collect();
        assert_eq!(sent, [(700, true), (400, true), (400, true), (1500, true)]);
        s.send(segment(ACK, 1, 13_001));
        s.write(fd, &[7; 100]).unwrap();
        s.expect(segment(ACK, 13_001, 1).payload(&[7; 100]));
        s.silence(100);
    });
}

/// The end comes with the last record, and not with an earlier one.
#[test]
fn the_end_follows_the_last_record() {
    on_flextoe("min_rto_ms=1000", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, &[1; 10_000]).unwrap();
        (0..10).for_each(|at| _ = s.expect(segment(ACK, 1 + 1000 * at, 1).payload(&[1; 1000])));
        s.send_with(fd, &[2; 400], libc::MSG_EOR).unwrap();
        s.send_with(fd, &[3; 500], libc::MSG_EOR).unwrap();
        s.shutdown(fd, libc::SHUT_WR).unwrap();
        s.send(segment(ACK, 1, 10_001));
        s.expect(segment(ACK, 10_001, 1).payload(&[2; 400]));
        s.expect(segment(FIN | ACK, 10_401, 1).payload(&[3; 500]));
        s.send(segment(ACK, 1, 10_902));
        s.silence(100);
    });
}
