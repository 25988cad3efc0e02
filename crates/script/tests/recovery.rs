//! Packet scripts about loss recovery with SACK: RACK-TLP (RFC 8985) and D-SACK (RFC 2883), as FlexTOE has them.
mod form;

use form::*;
use libc::c_int;

/// A connection with SACK, round trips of so many milliseconds, and so many segments of 1000 bytes on their way.
fn sender(s: &mut Script, round_trip: u32, segments: u32) -> c_int {
    let listener = s.listen();
    let fd = s.establish_over(listener, round_trip);
    s.write(fd, b"x").unwrap();
    s.expect(segment(ACK, 1, 1).payload(b"x"));
    s.sleep_ms(round_trip);
    s.send(segment(ACK, 1, 2));
    s.write(fd, &vec![7; 1000 * segments as usize]).unwrap();
    (0..segments).for_each(|at| sent(s, at));
    fd
}

/// The host sends segment number `at`.
#[track_caller]
fn sent(s: &mut Script, at: u32) {
    s.expect(segment(ACK, 2 + 1000 * at, 1).payload(&[7; 1000]));
}

/// The peer has all before segment `at`, and of the others those in `kept`: from and to.
fn tell(s: &Script, at: u32, kept: &[(u32, u32)]) {
    let blocks: Vec<_> = kept.iter().map(|(from, to)| (2 + 1000 * from, 2 + 1000 * to)).collect();
    s.send(segment(ACK, 1, 2 + 1000 * at).sack(&blocks));
}

// Checks RFC 8985: 6.2-g.
#[test]
fn a_hole_waits_for_a_quarter_of_a_round_trip() {
    on_flextoe("min_rto_ms=1000", |s| {
        sender(s, 20, 4);
        s.sleep_ms(20);
        tell(s, 0, &[(1, 2)]);
        let sent_at = s.now_us();
        s.silence(4);
        sent(s, 0);
        let waited = s.at_us - sent_at;
        assert!((4500..=6500).contains(&waited), "{waited} us");
        tell(s, 4, &[]);
        s.silence(100);
    });
}

// Checks RFC 8985: 6.2-h.
#[test]
fn a_lost_retransmission_is_sent_again_without_a_timeout() {
    on_flextoe("min_rto_ms=1000", |s| {
        let fd = sender(s, 20, 6);
        s.sleep_ms(20);
        tell(s, 0, &[(1, 6)]);
        sent(s, 0);
        s.write(fd, &[7; 2000]).unwrap();
        sent(s, 6);
        sent(s, 7);
        s.sleep_ms(20);
        let before = s.now_us();
        tell(s, 0, &[(1, 7)]);
        sent(s, 0);
        assert!(s.at_us - before < 5000, "it waited");
        tell(s, 8, &[]);
        s.silence(100);
    });
}

/// An acknowledgement that another one has overtaken: what its blocks report lets as much out.
#[test]
fn blocks_of_a_late_acknowledgement_count() {
    on_flextoe("min_rto_ms=1000", |s| {
        let fd = sender(s, 10, 10);
        s.sleep_ms(10);
        tell(s, 0, &[(1, 2)]);
        tell(s, 0, &[(1, 3)]);
        tell(s, 0, &[(1, 3), (8, 9)]);
        sent(s, 0);
        s.sleep_ms(12);
        tell(s, 4, &[(8, 9)]);
        (4..7).for_each(|at| sent(s, at));
        s.write(fd, &[7; 10_000]).unwrap();
        s.silence(2);
        tell(s, 3, &[(5, 7)]);
        sent(s, 7);
        sent(s, 10);
        s.silence(2);
        tell(s, 3, &[(5, 7)]);
        s.silence(2);
    });
}

// Checks RFC 8985: 7.2-a, 7.2-b, 7.3-a.
#[test]
fn the_last_segment_of_several_is_probed_before_the_timeout() {
    on_flextoe("min_rto_ms=1000,tail_probe_ms=1", |s| {
        sender(s, 0, 4);
        let written = s.at_us;
        sent(s, 3);
        let waited = s.at_us - written;
        assert!((900..=20_000).contains(&waited), "{waited} us");
        // The first two came; the probe's answer shows that the third did not.
        tell(s, 2, &[(3, 4)]);
        sent(s, 2);
        tell(s, 4, &[]);
        s.silence(100);
    });
}

// Checks RFC 8985: 7.2-b.
#[test]
fn a_lone_segment_is_probed_later_where_peers_delay() {
    for (segments, times) in [(1, 200_000..=230_000), (2, 900..=20_000)] {
        on_flextoe("min_rto_ms=1000,tail_probe_ms=1,tail_probe_ack_delay_ms=200", |s| {
            sender(s, 0, segments);
            let written = s.at_us;
            sent(s, segments - 1);
            let waited = s.at_us - written;
            assert!(times.contains(&waited), "{segments} segments, {waited} us");
        });
    }
}

// Checks RFC 8985: 7.2-c, 7.3-b.
#[test]
fn a_probe_brings_new_bytes_and_is_one() {
    on_flextoe("min_rto_ms=400,tail_probe_ms=1", |s| {
        // The congestion window lets ten out.
        let fd = sender(s, 0, 10);
        s.write(fd, &[7; 5000]).unwrap();
        sent(s, 10);
        s.silence(200);
    });
}

// Checks RFC 8985: 6.3-a.
#[test]
fn a_timeout_spares_what_was_sent_just_before_it() {
    on_flextoe("min_rto_ms=200,tail_probe_ms=0", |s| {
        let fd = sender(s, 20, 2);
        s.silence(190);
        s.write(fd, &[7; 1000]).unwrap();
        sent(s, 2);
        sent(s, 0);
        tell(s, 1, &[]);
        sent(s, 1);
        // The window is open for another one.
        s.silence(8);
        tell(s, 3, &[]);
        s.silence(100);
    });
}

/// Acknowledgements are held up for longer than the timeout, and then come one by one.
// Checks RFC 5682: 3.1-b, 3.1-c, 3.1-d.
#[test]
fn a_timeout_in_vain_sends_nothing_more_again() {
    on_flextoe("min_rto_ms=200,tail_probe_ms=0", |s| {
        let fd = sender(s, 20, 6);
        s.write(fd, &[7; 8000]).unwrap();
        (6..10).for_each(|at| sent(s, at));
        sent(s, 0);
        tell(s, 1, &[]);
        (10..12).for_each(|at| sent(s, at));
        (2..=10).for_each(|at| tell(s, at, &[]));
        (12..14).for_each(|at| sent(s, at));
        tell(s, 14, &[]);
        s.silence(100);
    });
}

// Checks RFC 2883: 4-a, 4-c.
#[test]
fn what_comes_twice_is_reported_first() {
    on_flextoe("", |s| {
        let listener = s.listen();
        s.establish_with_sack(listener);
        let answer_to = |s: &mut Script, seq: u32, len: usize| {
            s.send(segment(ACK, seq, 1).payload(&vec![7; len]));
            let answer = s.next();
            (answer.ack, answer.sack)
        };
        s.send(segment(ACK, 1, 1).payload(&[7; 100]));
        s.expect(segment(ACK, 1, 101));
        assert_eq!(answer_to(s, 1, 100), (101, vec![(1, 101)]));
        assert_eq!(answer_to(s, 201, 100), (101, vec![(201, 301)]));
        assert_eq!(answer_to(s, 201, 50), (101, vec![(201, 251), (201, 301)]));
        assert_eq!(answer_to(s, 101, 100).0, 301);
    });
}

// Checks RFC 2018: 4-b, 4-c.
#[test]
fn four_ranges_are_reported_where_a_header_has_no_timestamps() {
    on_flextoe("", |s| {
        let listener = s.listen();
        s.establish_with_sack(listener);
        let ranges: Vec<_> = (0..5).map(|at| (101 + 200 * at, 201 + 200 * at)).collect();
        for have in 1..=ranges.len() {
            s.send(segment(ACK, ranges[have - 1].0, 1).payload(&[7; 100]));
            let latest: Vec<_> = ranges[..have].iter().rev().take(4).copied().collect();
            assert_eq!(s.next().sack, latest);
        }
    });
}

/// `tcpi_dsack_dups` of Linux.
const DSACK_DUPS: usize = 216;

// Checks RFC 2883: 5-a.
#[test]
fn what_came_twice_is_counted() {
    on_flextoe("min_rto_ms=1000", |s| {
        let fd = sender(s, 20, 6);
        s.sleep_ms(20);
        tell(s, 0, &[(1, 4)]);
        sent(s, 0);
        tell(s, 6, &[(0, 1)]);
        s.sleep_ms(1);
        let info = Script::libc_get(fd, libc::IPPROTO_TCP, libc::TCP_INFO);
        assert_eq!(info[DSACK_DUPS..DSACK_DUPS + 4], 1u32.to_ne_bytes());
    });
}
