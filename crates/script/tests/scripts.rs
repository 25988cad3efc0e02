//! Packet scripts: what a peer sees, segment by segment, on each engine.
mod form;

use form::*;
use libc::{EAGAIN, ECONNREFUSED, ECONNRESET, EINPROGRESS, EPIPE, ETIMEDOUT, IPPROTO_TCP, SOL_SOCKET};

#[test]
fn a_peer_opens_talks_and_closes_first() {
    on_all("", |s| {
        let listener = s.listen();
        assert_eq!(s.accept(listener), Err(EAGAIN));
        s.send(segment(SYN, 0, 0).mss(1000));
        let answer = s.expect(segment(SYN | ACK, 0, 1));
        assert_eq!(answer.mss, Some(s.largest_mss()), "it states what it takes");
        assert_eq!(s.accept(listener), Err(EAGAIN), "not before the handshake is done");
        s.send(segment(ACK, 1, 1));
        let fd = s.accept(listener).unwrap();
        s.send(segment(PSH | ACK, 1, 1).payload(b"hello"));
        s.expect(segment(ACK, 1, 6));
        assert_eq!(s.read(fd).unwrap(), b"hello");
        assert_eq!(s.read(fd), Err(EAGAIN));
        assert_eq!(s.write(fd, b"world!"), Ok(6));
        s.expect(segment(ACK, 1, 6).payload(b"world!"));
        s.send(segment(ACK, 6, 7));
        s.send(segment(FIN | ACK, 6, 7));
        s.expect(segment(ACK, 7, 7));
        assert_eq!(s.read(fd).unwrap(), b"");
        assert!(s.poll(fd) & libc::POLLRDHUP != 0);
        s.close(fd);
        s.expect(segment(FIN | ACK, 7, 7));
        s.send(segment(ACK, 7, 8));
        // LAST-ACK is over: nobody is there any more.
        s.send(segment(ACK, 7, 8));
        s.expect(segment(RST, 8, 0));
    });
}

#[test]
fn the_host_opens_and_closes_first_and_answers_in_time_wait() {
    on_all("", |s| {
        let (fd, begun) = s.connect();
        assert_eq!(begun, Err(EINPROGRESS));
        s.expect(segment(SYN, 0, 0));
        s.send(segment(SYN | ACK, 0, 1).mss(1000));
        s.expect(segment(ACK, 1, 1));
        assert_eq!(s.get(fd, SOL_SOCKET, libc::SO_ERROR), 0);
        s.close(fd);
        s.expect(segment(FIN | ACK, 1, 1));
        s.send(segment(ACK, 1, 2));
        s.send(segment(FIN | ACK, 1, 2));
        s.expect(segment(ACK, 2, 2));
        // The acknowledgement was lost: the peer sends its FIN again.
        s.send(segment(FIN | ACK, 1, 2));
        s.expect(segment(ACK, 2, 2));
    });
}

#[test]
fn both_open_at_once() {
    // RFC 9293 section 3.5, figure 7.
    on_all("", |s| {
        let (fd, _) = s.connect();
        s.expect(segment(SYN, 0, 0));
        s.send(segment(SYN, 0, 0).mss(1000));
        s.expect(segment(SYN | ACK, 0, 1));
        s.send(segment(SYN | ACK, 0, 1).mss(1000));
        s.sleep_ms(1);
        assert_eq!(s.write(fd, b"x"), Ok(1));
        let mut next = s.next();
        // The acknowledgement of the peer's SYN-ACK may come alone before.
        if next.payload.is_empty() {
            assert_eq!((next.flags, next.seq, next.ack), (ACK, 1, 1));
            next = s.next();
        }
        assert_eq!((next.seq, next.ack, &next.payload[..]), (1, 1, &b"x"[..]));
    });
}

#[test]
fn both_close_at_once() {
    // RFC 9293 section 3.6, figure 13: FINs cross.
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.close(fd);
        s.expect(segment(FIN | ACK, 1, 1));
        s.send(segment(FIN | ACK, 1, 1));
        s.expect(segment(ACK, 2, 2));
        s.send(segment(ACK, 2, 2));
        // TIME-WAIT, not CLOSED: the FIN again is acknowledged again.
        s.send(segment(FIN | ACK, 1, 1));
        s.expect(segment(ACK, 2, 2));
    });
}

/// Requests that are answered after 20 ms, and one that is not: its timer starts when it is sent (RFC 6298 section
/// 5.1).
#[test]
fn the_timeout_of_a_request_starts_with_it() {
    on_all("min_rto_ms=200", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        for at in 0..6 {
            s.write(fd, b"ask").unwrap();
            s.expect(segment(ACK, 1 + 3 * at, 1).payload(b"ask"));
            s.sleep_ms(20);
            s.send(segment(ACK, 1, 4 + 3 * at));
        }
        s.write(fd, b"ask").unwrap();
        s.expect(segment(ACK, 19, 1).payload(b"ask"));
        let sent = s.at_us;
        s.expect(segment(ACK, 19, 1).payload(b"ask"));
        let waited = s.at_us - sent;
        assert!((198_000..=204_000).contains(&waited), "{waited} us");
    });
}

/// A lone segment that is lost is sent again long before the timeout, once, and then with it.
#[test]
fn the_end_of_what_was_sent_is_probed() {
    on_all("min_rto_ms=200,tail_probe_ms=1", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, b"ask").unwrap();
        s.expect(segment(ACK, 1, 1).payload(b"ask"));
        let sent = s.at_us;
        s.expect(segment(ACK, 1, 1).payload(b"ask"));
        let waited = s.at_us - sent;
        assert!((1000..=4000).contains(&waited), "{waited} us");
        s.expect(segment(ACK, 1, 1).payload(b"ask"));
        let waited = s.at_us - sent;
        assert!((198_000..=204_000).contains(&waited), "{waited} us");
        s.send(segment(ACK, 1, 4));
        s.silence(100_000);
    });
}

#[test]
fn what_is_not_acknowledged_is_sent_again_ever_more_slowly() {
    on_all("min_rto_ms=200", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, b"lost").unwrap();
        s.expect(segment(ACK, 1, 1).payload(b"lost"));
        let (mut last, mut pause) = (s.at_us, 0);
        for _ in 0..5 {
            s.expect(segment(ACK, 1, 1).payload(b"lost"));
            let now = s.at_us - last;
            // RFC 6298 section 5.5: the timeout doubles.
            assert!(pause == 0 || (now - 2 * pause).abs() <= pause / 4, "{pause} us, then {now} us");
            (last, pause) = (s.at_us, now);
        }
        s.send(segment(ACK, 1, 5));
        s.silence(100_000);
    });
}

#[test]
fn three_duplicate_acknowledgements_send_again_at_once() {
    on_all("min_rto_ms=1000", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, &[7; 5000]).unwrap();
        for part in 0..5 {
            s.expect(segment(ACK, 1 + part * 1000, 1).payload(&[7; 1000]));
        }
        let before = s.at_us;
        // The first one got lost.
        for _ in 0..3 {
            s.send(segment(ACK, 1, 1));
        }
        s.expect(segment(ACK, 1, 1).payload(&[7; 1000]));
        assert!(s.at_us - before < 500_000, "it waited for the timeout");
    });
}

// Checks RFC 5681: 3.2-e.
#[test]
fn limited_transmit_sends_two_new_segments() {
    // RFC 3042: limited transmit, beyond the congestion window of ten segments, which stays as it is.
    on_all("min_rto_ms=1000", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, &[7; 20_000]).unwrap();
        for part in 0..10 {
            s.expect(segment(ACK, 1 + part * 1000, 1).payload(&[7; 1000]));
        }
        s.silence(1);
        for part in [10, 11] {
            s.send(segment(ACK, 1, 1));
            s.expect(segment(ACK, 1 + part * 1000, 1).payload(&[7; 1000]));
            s.silence(1);
        }
        s.send(segment(ACK, 1, 1));
        s.expect(segment(ACK, 1, 1).payload(&[7; 1000]));
    });
}

#[test]
fn a_closed_window_is_probed_and_goes_on_when_it_opens() {
    // RFC 9293 section 3.8.6.1.
    on_all("min_rto_ms=200", |s| {
        let listener = s.listen();
        s.send(segment(SYN, 0, 0).mss(1000));
        s.expect(segment(SYN | ACK, 0, 1));
        s.send(segment(ACK, 1, 1).window(10));
        let fd = s.accept(listener).unwrap();
        s.write(fd, b"0123456789abcdef").unwrap();
        s.expect(segment(ACK, 1, 1).payload(b"0123456789"));
        s.send(segment(ACK, 1, 11).window(0));
        for _ in 0..3 {
            let probe = s.next();
            assert!(probe.seq <= 11 && probe.payload.len() <= 1, "{probe:?} is no probe");
            s.send(segment(ACK, 1, 11).window(0));
        }
        s.send(segment(ACK, 1, 11).window(100));
        let mut next = s.next();
        while next.payload.len() <= 1 {
            next = s.next();
        }
        assert_eq!((next.seq, &next.payload[..]), (11, &b"abcdef"[..]));
    });
}

#[test]
fn the_peers_segment_size_is_kept() {
    on_all("", |s| {
        let listener = s.listen();
        s.send(segment(SYN, 0, 0));
        s.expect(segment(SYN | ACK, 0, 1));
        s.send(segment(ACK, 1, 1));
        let fd = s.accept(listener).unwrap();
        s.write(fd, &[1; 1000]).unwrap();
        // RFC 9293 section 3.7.1, MUST-15: 536 where the option is missing.
        s.expect(segment(ACK, 1, 1).payload(&[1; 536]));
        s.expect(segment(ACK, 537, 1).payload(&[1; 464]));
    });
}

#[test]
fn only_an_exact_reset_is_believed() {
    // RFC 5961 section 3.2.
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(RST, 100_000, 0));
        s.silence(100);
        s.send(segment(RST, 2, 0));
        s.expect(segment(ACK, 1, 1));
        assert_eq!(s.read(fd), Err(EAGAIN));
        s.send(segment(RST, 1, 0));
        s.sleep_ms(1);
        assert_eq!(s.read(fd), Err(ECONNRESET));
        assert_eq!(s.read(fd).unwrap(), b"");
        assert_eq!(s.write(fd, b"x"), Err(EPIPE));
    });
}

#[test]
fn a_syn_on_an_open_connection_is_challenged() {
    // RFC 5961 section 4.2.
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(SYN, 1, 0));
        s.expect(segment(ACK, 1, 1));
        s.send(segment(PSH | ACK, 1, 1).payload(b"still here"));
        s.expect(segment(ACK, 1, 11));
        assert_eq!(s.read(fd).unwrap(), b"still here");
    });
}

// Checks RFC 5961: 7-a, 10-a.
#[test]
fn challenges_of_one_connection_use_up_no_other_connections() {
    // CVE-2016-5696: a limit for all connections would reveal to an off-path attacker whether a guess at another
    // connection hit.
    on_all("", |s| {
        let listener = s.listen();
        s.establish(listener);
        (0..150).for_each(|_| s.send(segment(SYN, 1, 0)));
        s.send(segment(PSH | ACK, 1, 1).payload(b"end"));
        let mut challenges = 0;
        while s.next().ack == 1 {
            challenges += 1;
        }
        assert_eq!(challenges, 10, "challenges of one connection in one interval");
        s.next_peer();
        s.establish(listener);
        s.send(segment(SYN, 1, 0));
        s.expect(segment(ACK, 1, 1));
    });
}

// Checks RFC 5961: 7-a.
#[test]
fn empty_segments_that_cannot_be_are_answered_within_the_limit() {
    // Two ends that disagree would answer each other's answers for ever.
    on_all("", |s| {
        let listener = s.listen();
        for (seq, ack) in [(1, 5000), (0, 5000), (500_000, 1), (1, 1u32.wrapping_sub(70_000))] {
            s.establish(listener);
            (0..150).for_each(|_| s.send(segment(ACK, seq, ack)));
            s.send(segment(PSH | ACK, 1, 1).payload(b"end"));
            let mut answers = 0;
            while s.next().ack == 1 {
                answers += 1;
            }
            assert_eq!(answers, 10, "number {seq}, acknowledgement {ack}");
            s.next_peer();
        }
    });
}

// Checks RFC 5961: 5.2-a.
#[test]
fn an_acknowledgement_older_than_the_largest_window_is_old() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(PSH | ACK, 1, 1u32.wrapping_sub(65_536)).payload(b"forged"));
        s.expect(segment(ACK, 1, 1));
        assert_eq!(s.read(fd), Err(EAGAIN));
        s.send(segment(PSH | ACK, 1, 1u32.wrapping_sub(65_535)).payload(b"late"));
        s.expect(segment(ACK, 1, 5));
        assert_eq!(s.read(fd).unwrap(), b"late");
    });
}

// Checks RFC 9293: 3.10.7.4-a.
#[test]
fn what_lies_outside_the_window_acknowledges_nothing() {
    // A doubled segment of an earlier connection of the same ports: answered, and dropped as a whole.
    on_all("min_rto_ms=200", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(PSH | ACK, 1, 1).payload(&[7; 1000]));
        s.expect(segment(ACK, 1, 1001));
        s.write(fd, b"lost").unwrap();
        s.expect(segment(ACK, 1, 1001).payload(b"lost"));
        for seq in [1u32.wrapping_sub(750), 990, 1_000_000] {
            s.send(segment(PSH | ACK, seq, 5).payload(b"other"));
            s.expect(segment(ACK, 5, 1001));
        }
        s.expect(segment(ACK, 1, 1001).payload(b"lost"));
        s.send(segment(ACK, 1001, 5));
        s.silence(100_000);
    });
}

#[test]
fn an_acknowledgement_of_unsent_bytes_is_answered() {
    // RFC 9293 section 3.10.7.4, fifth; RFC 5961 section 5.2.
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(PSH | ACK, 1, 5000).payload(b"forged"));
        s.expect(segment(ACK, 1, 1));
        assert_eq!(s.read(fd), Err(EAGAIN));
    });
}

#[test]
fn nobody_listens() {
    on_all("", |s| {
        s.send(segment(SYN, 0, 0));
        // RFC 9293 section 3.10.7.1: sequence number 0, acknowledging the SYN. There is no first number to count from.
        let reset = s.next();
        assert_eq!((reset.flags, reset.seq, reset.ack), (RST | ACK, 0, 1));
        s.send(segment(ACK, 1, 77));
        s.expect(segment(RST, 77, 0));
        s.send(segment(RST, 1, 0));
        s.silence(100);
        let (fd, _) = s.connect();
        s.expect(segment(SYN, 0, 0));
        s.send(segment(RST | ACK, 0, 1));
        s.sleep_ms(1);
        assert_eq!(s.get(fd, SOL_SOCKET, libc::SO_ERROR), ECONNREFUSED);
    });
}

#[test]
fn a_syn_that_nobody_answers_is_repeated_and_given_up() {
    on_all("", |s| {
        let (fd, _) = s.connect();
        s.expect(segment(SYN, 0, 0));
        let (begin, mut times) = (s.at_us, Vec::new());
        for _ in 0..4 {
            s.expect(segment(SYN, 0, 0));
            times.push((s.at_us - begin) / 1_000_000);
        }
        // RFC 6298 section 2.1: one second, and doubling.
        assert_eq!(times, [1, 3, 7, 15]);
        s.sleep_ms(300_000);
        assert_eq!(s.get(fd, SOL_SOCKET, libc::SO_ERROR), ETIMEDOUT);
    });
}

#[test]
fn half_a_connection_goes_on() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.shutdown(fd, libc::SHUT_WR).unwrap();
        s.expect(segment(FIN | ACK, 1, 1));
        s.send(segment(ACK, 1, 2));
        assert_eq!(s.write(fd, b"x"), Err(EPIPE));
        s.send(segment(PSH | ACK, 1, 2).payload(b"more"));
        s.expect(segment(ACK, 2, 5));
        assert_eq!(s.read(fd).unwrap(), b"more");
        s.send(segment(FIN | ACK, 5, 2));
        s.expect(segment(ACK, 2, 6));
        assert_eq!(s.read(fd).unwrap(), b"");
    });
}

#[test]
fn closing_with_bytes_unread_resets() {
    // RFC 9293 section 3.6, and RFC 2525 section 2.17: the peer must learn that bytes are lost.
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(PSH | ACK, 1, 1).payload(b"never read"));
        s.expect(segment(ACK, 1, 11));
        s.close(fd);
        let reset = s.next();
        assert!(reset.flags.has(RST), "{reset:?}");
        assert_eq!(reset.seq, 1);
    });
}

// Checks RFC 9293: SHLD-3.
#[test]
fn data_after_close_resets() {
    // RFC 9293 section 3.6.1, RFC 1122 section 4.2.2.13. The data may come with the acknowledgement of the host's FIN,
    // with the peer's FIN, or both, before or after that acknowledgement.
    for (flags, ack, acknowledged) in [
        (PSH | ACK, 1, false),
        (PSH | ACK, 2, false),
        (PSH | ACK, 2, true),
        (FIN | ACK, 1, false),
        (FIN | ACK, 2, false),
        (FIN | ACK, 2, true),
    ] {
        on_all("", |s| {
            let listener = s.listen();
            let fd = s.establish(listener);
            s.close(fd);
            s.expect(segment(FIN | ACK, 1, 1));
            if acknowledged {
                s.send(segment(ACK, 1, 2));
                s.silence(10);
            }
            s.send(segment(flags, 1, ack).payload(&[7; 1000]));
            let reset = s.next();
            assert!(reset.flags.has(RST), "{flags:?} ack {ack}: {reset:?}");
            assert_eq!((reset.seq, reset.ack <= 1), (2, true), "{flags:?} ack {ack}");
        });
    }
}

#[test]
fn old_data_and_an_empty_fin_after_close_do_not_reset() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(PSH | ACK, 1, 1).payload(b"read"));
        s.expect(segment(ACK, 1, 5));
        assert_eq!(s.read(fd).unwrap(), b"read");
        s.close(fd);
        s.expect(segment(FIN | ACK, 1, 5));
        s.send(segment(PSH | ACK, 1, 1).payload(b"read"));
        s.expect(segment(ACK, 2, 5));
        s.send(segment(FIN | ACK, 1, 2).payload(b"read"));
        loop {
            let answer = s.next();
            assert_eq!((answer.flags, answer.seq), (ACK, 2), "{answer:?}");
            if answer.ack == 6 {
                break;
            }
        }
    });
}

#[test]
fn linger_with_no_time_resets() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.set(fd, SOL_SOCKET, libc::SO_LINGER, &[1, 0]);
        s.close(fd);
        let reset = s.next();
        assert!(reset.flags.has(RST), "{reset:?}");
        assert_eq!(reset.seq, 1);
    });
}

#[test]
fn bytes_out_of_order_wait_for_those_before_them() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(PSH | ACK, 6, 1).payload(b"world"));
        s.expect(segment(ACK, 1, 1));
        assert_eq!(s.read(fd), Err(EAGAIN));
        s.send(segment(PSH | ACK, 1, 1).payload(b"hello"));
        s.expect(segment(ACK, 1, 11));
        assert_eq!(s.read(fd).unwrap(), b"helloworld");
        // Old bytes again: acknowledged, not delivered.
        s.send(segment(PSH | ACK, 1, 1).payload(b"HELLO"));
        s.expect(segment(ACK, 1, 11));
        assert_eq!(s.read(fd), Err(EAGAIN));
    });
}

#[test]
fn what_does_not_fit_the_window_is_not_taken() {
    on_all("rx_bytes=4096", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        for part in 0..4 {
            s.send(segment(ACK, 1 + part * 1000, 1).payload(&[part as u8; 1000]));
            s.expect(segment(ACK, 1, 1001 + part * 1000));
        }
        // 96 bytes are left: a segment is cut, and what lies behind the window is answered.
        s.send(segment(ACK, 4001, 1).payload(&[9; 1000]));
        let answer = s.next();
        assert!((4001..=4097).contains(&answer.ack) && answer.window == 0 || answer.ack == 4001, "{answer:?}");
        s.send(segment(ACK, 90_000, 1).payload(b"far away"));
        let again = s.next();
        assert_eq!(again.ack, answer.ack);
        assert_eq!(s.read(fd).unwrap().len() as u32, answer.ack - 1);
    });
}

// Checks RFC 9293: MUST-1.
// Checks RFC 5961: 3.2-a.
#[test]
fn bytes_beyond_the_advertised_window_are_not_taken() {
    // RFC 9293 section 3.10.7.4: the window is the one that was advertised, here 65,535 bytes at most, since the peer
    // does not scale. RFC 5961 section 3.2: a reset beyond it is dropped silently.
    on_all("rx_bytes=8388608", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(PSH | ACK, 100_001, 1).payload(&[7; 1000]));
        let answer = s.expect(segment(ACK, 1, 1));
        s.send(segment(RST, 100_001, 0));
        s.silence(10);
        let edge = 1 + u32::from(answer.window);
        s.send(segment(RST, edge, 0));
        s.silence(10);
        s.send(segment(RST, edge - 1, 0));
        s.expect(segment(ACK, 1, 1));
        // A segment across the edge is cut there, or not taken at all.
        s.send(segment(ACK, edge - 10, 1).payload(&[7; 20]));
        s.expect(segment(ACK, 1, 1));
        assert_eq!(s.write(fd, b"alive"), Ok(5));
        s.expect(segment(ACK, 1, 1).payload(b"alive"));
    });
}

#[test]
fn silence_is_probed_where_keepalive_is_on() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.set(fd, IPPROTO_TCP, libc::TCP_KEEPIDLE, &[10]);
        s.set(fd, IPPROTO_TCP, libc::TCP_KEEPINTVL, &[2]);
        s.set(fd, IPPROTO_TCP, libc::TCP_KEEPCNT, &[3]);
        s.set(fd, SOL_SOCKET, libc::SO_KEEPALIVE, &[1]);
        s.silence(9_000);
        let probe = s.next();
        assert_eq!((probe.seq, probe.payload.len()), (0, 0), "one before what the peer expects");
        s.send(segment(ACK, 1, 1));
        s.silence(9_000);
        for _ in 0..3 {
            s.next();
        }
        s.sleep_ms(10_000);
        assert_eq!(s.read(fd), Err(ETIMEDOUT));
    });
}

#[test]
fn an_accepted_connection_outlives_its_listener() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.close(listener);
        s.silence(100);
        s.send(segment(PSH | ACK, 1, 1).payload(b"still here"));
        s.expect(segment(ACK, 1, 11));
        assert_eq!(s.read(fd).unwrap(), b"still here");
    });
}
