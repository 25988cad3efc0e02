//! Packet scripts about the congestion window: it follows each acknowledgement, and a loss reduces it at once.
mod form;

use form::*;
use libc::c_int;

/// `tcpi_ca_state` of Linux.
fn ca_state(fd: c_int) -> u8 {
    Script::libc_get(fd, libc::IPPROTO_TCP, libc::TCP_INFO)[1]
}

/// The window and the threshold of `TCP_INFO`, segments.
fn window(fd: c_int) -> (u32, u32) {
    let info = Script::libc_get(fd, libc::IPPROTO_TCP, libc::TCP_INFO);
    let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
    (word(80), word(76))
}

/// The host sends segments of 1000 bytes, from the first one of these numbers to before the second.
#[track_caller]
fn sent(s: &mut Script, from: u32, to: u32) {
    (from..to).for_each(|at| _ = s.expect(segment(ACK, 1 + 1000 * at, 1).payload(&[7; 1000])));
}

/// `TCP_INFINITE_SSTHRESH` of Linux.
const NO_THRESHOLD: u32 = i32::MAX as u32;

// Checks RFC 5681: 3.1-b, 3.1-c.
#[test]
fn in_slow_start_each_acknowledgement_lets_two_segments_go() {
    on_all("min_rto_ms=1000", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, &[7; 40_000]).unwrap();
        sent(s, 0, 10);
        s.silence(20);
        assert_eq!(window(fd), (10, NO_THRESHOLD));
        for at in 1..=5 {
            let before = s.now_us();
            s.send(segment(ACK, 1, 1 + 1000 * at));
            sent(s, 8 + 2 * at, 10 + 2 * at);
            assert!(s.at_us - before < 1000, "with the acknowledgement, and not with a poll");
            assert_eq!(window(fd).0, 10 + at);
        }
        s.send(segment(ACK, 1, 10_001));
        sent(s, 20, 30);
        assert_eq!(window(fd).0, 20, "as much as is acknowledged");
    });
}

// Checks RFC 5681: 4.1-a.
#[test]
fn a_window_that_is_half_empty_does_not_grow() {
    on_all("min_rto_ms=1000", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, &[7; 5000]).unwrap();
        sent(s, 0, 5);
        s.send(segment(ACK, 1, 5001));
        s.sleep_ms(1);
        assert_eq!(window(fd).0, 10);
        s.write(fd, &[7; 9000]).unwrap();
        sent(s, 5, 14);
        for (ack, cwnd) in [(7, 12), (9, 14), (11, 16), (13, 18), (14, 18)] {
            s.send(segment(ACK, 1, 1 + 1000 * ack));
            s.sleep_ms(1);
            assert_eq!(window(fd).0, cwnd, "twice of what was in flight at most");
        }
    });
}

/// Linux's `tcp_slow_start_after_idle`.
// Checks RFC 5681: 4.1-a.
#[test]
fn idle_time_takes_the_window_back_to_the_initial_one() {
    for (flag, cwnd) in [("slow_start_after_idle_ms=200", 10), ("slow_start_after_idle_ms=0", 20)] {
        on_all(&format!("min_rto_ms=1000,{flag}"), |s| {
            let listener = s.listen();
            let fd = s.establish(listener);
            s.write(fd, &[7; 10_000]).unwrap();
            sent(s, 0, 10);
            s.send(segment(ACK, 1, 10_001));
            s.silence(900);
            assert_eq!(window(fd).0, 20, "the timeout has not passed");
            s.silence(1500);
            assert_eq!(window(fd), (cwnd, NO_THRESHOLD));
            s.write(fd, &[7; 30_000]).unwrap();
            sent(s, 10, 10 + cwnd);
            s.silence(20);
            s.send(segment(ACK, 1, 10_001 + 1000 * cwnd));
            sent(s, 10 + cwnd, 40.min(10 + 3 * cwnd));
        });
    }
}

/// What is acknowledged with an echo of congestion lets as much go, and no more (RFC 3168 section 6.1.2).
#[test]
fn an_echo_of_congestion_does_not_widen_the_window() {
    on_flextoe("min_rto_ms=1000,ecn=true,congestion=cubic", |s| {
        let listener = s.listen();
        s.send(segment(SYN | ECE | CWR, 0, 0).mss(1000));
        s.expect(segment(SYN | ACK | ECE, 0, 1));
        // Round trips are long: the policy runs later than what is sent with an acknowledgement.
        s.sleep_ms(100);
        s.send(segment(ACK, 1, 1));
        let fd = s.accept(listener).unwrap();
        s.write(fd, &[7; 40_000]).unwrap();
        sent(s, 0, 10);
        s.sleep_ms(99);
        s.send(segment(ACK, 1, 1001));
        sent(s, 10, 12);
        assert_eq!(window(fd).0, 11);
        s.send(segment(ACK | ECE, 1, 2001));
        assert_eq!(window(fd).0, 11);
        sent(s, 12, 13);
    });
}

// Checks RFC 5681: 3.2-d.
// Checks RFC 9937: 6-a.
#[test]
fn a_loss_reduces_the_window_at_once() {
    on_flextoe("min_rto_ms=1000", |s| {
        let listener = s.listen();
        let fd = s.establish_over(listener, 100);
        s.write(fd, &[7; 20_000]).unwrap();
        sent(s, 0, 10);
        s.sleep_ms(100);
        s.send(segment(ACK, 1, 1).sack(&[(1001, 4001)]));
        sent(s, 0, 1);
        s.sleep_ms(1);
        assert_eq!((window(fd), ca_state(fd)), ((7, 7), 3), "not when congestion control would run next");
        // Six of ten were in flight. With less than the window, as many go as come.
        s.send(segment(ACK, 1, 1).sack(&[(1001, 5001)]));
        sent(s, 10, 11);
        s.silence(20);
        s.send(segment(ACK, 1, 11_001));
        sent(s, 11, 18);
        assert_eq!((window(fd).0, ca_state(fd)), (7, 0));
    });
}

/// What the peer had beyond the hole lets nothing go once more when the hole is filled.
// Checks RFC 5681: 3.1-c.
#[test]
fn what_was_reported_before_does_not_count_twice() {
    for has_sack in [true, false] {
        on_flextoe("min_rto_ms=1000", |s| {
            let listener = s.listen();
            let fd = if has_sack { s.establish_over(listener, 100) } else { s.establish(listener) };
            s.write(fd, &[7; 20_000]).unwrap();
            sent(s, 0, 10);
            s.sleep_ms(1);
            for end in [2001, 3001] {
                let duplicate = segment(ACK, 1, 1);
                s.send(if has_sack { duplicate.sack(&[(1001, end)]) } else { duplicate });
                sent(s, 8 + end / 1000, 9 + end / 1000);
            }
            s.sleep_ms(1);
            assert_eq!(ca_state(fd), u8::from(has_sack));
            s.send(segment(ACK, 1, 3001));
            sent(s, 12, 14);
            s.silence(20);
            assert_eq!(window(fd).0, 11);
        });
    }
}

/// The first segments of a connection: no other round trip was measured.
// Checks RFC 8985: 6.2-g, 6.2-i.
#[test]
fn the_handshake_gives_the_first_reordering_window() {
    on_flextoe("min_rto_ms=1000", |s| {
        let listener = s.listen();
        let fd = s.establish_over(listener, 100);
        s.write(fd, &[7; 4000]).unwrap();
        sent(s, 0, 4);
        s.sleep_ms(100);
        let before = s.now_us();
        s.send(segment(ACK, 1, 1).sack(&[(1001, 2001)]));
        s.silence(23);
        sent(s, 0, 1);
        let waited = s.at_us - before;
        assert!((24_000..=28_000).contains(&waited), "{waited} us");
    });
}
