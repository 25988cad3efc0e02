//! Packet scripts about the control plane's half of TCP: states, listeners, resets.
mod form;

use form::*;
use libc::{ECONNRESET, EPIPE, IPPROTO_TCP, TCP_INFO};

/// `tcpi_state` of Linux.
fn state(s: &Script, fd: libc::c_int) -> u8 {
    s.get(fd, IPPROTO_TCP, TCP_INFO) as u8
}

const ESTABLISHED: u8 = 1;
const FIN_WAIT_1: u8 = 4;
const FIN_WAIT_2: u8 = 5;
const TIME_WAIT: u8 = 6;
const CLOSED: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;

#[test]
fn shutdown_changes_the_state_before_the_fin_is_acknowledged() {
    // RFC 9293 section 3.6, figure 5.
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        assert_eq!(state(s, fd), ESTABLISHED);
        s.shutdown(fd, libc::SHUT_WR).unwrap();
        s.expect(segment(FIN | ACK, 1, 1));
        assert_eq!(state(s, fd), FIN_WAIT_1);
        s.send(segment(ACK, 1, 2));
        s.sleep_ms(1);
        assert_eq!(state(s, fd), FIN_WAIT_2);
    });
}

#[test]
fn every_way_of_closing_goes_through_the_states_of_figure_5() {
    // RFC 9293 section 3.3.2, figure 5: this host's FIN (F), its acknowledgement (A), the peer's FIN (P), in any order.
    let orders: [(&str, &[u8]); 6] = [
        ("FAP", &[FIN_WAIT_1, FIN_WAIT_2, TIME_WAIT]),
        ("FPA", &[FIN_WAIT_1, CLOSING, TIME_WAIT]),
        ("PFA", &[CLOSE_WAIT, LAST_ACK, CLOSED]),
        ("F", &[FIN_WAIT_1]),
        ("P", &[CLOSE_WAIT]),
        ("FA", &[FIN_WAIT_1, FIN_WAIT_2]),
    ];
    on_all("", |s| {
        let listener = s.listen();
        for (order, states) in orders {
            let fd = s.establish(listener);
            assert_eq!(state(s, fd), ESTABLISHED);
            let (mut sent, mut acked, mut ended) = (1, 1, 1);
            for (step, expected) in order.chars().zip(states) {
                match step {
                    'F' => {
                        s.shutdown(fd, libc::SHUT_WR).unwrap();
                        s.expect(segment(FIN | ACK, sent, ended));
                        sent += 1;
                    }
                    'A' => {
                        acked = sent;
                        s.send(segment(ACK, ended, acked));
                    }
                    _ => {
                        s.send(segment(FIN | ACK, ended, acked));
                        ended += 1;
                        s.expect(segment(ACK, sent, ended));
                    }
                }
                s.sleep_ms(1);
                assert_eq!(state(s, fd), *expected, "{order} after {step}");
            }
            s.next_peer();
        }
    });
}

#[test]
fn a_connection_that_was_reset_is_closed() {
    // RFC 9293 section 3.10.7.4, second: "enter the CLOSED state".
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.send(segment(RST, 1, 0));
        s.sleep_ms(1);
        assert_eq!(state(s, fd), CLOSED);
    });
}

#[test]
fn a_reset_in_last_ack_is_no_broken_pipe() {
    // As Linux: EPIPE is for CLOSE-WAIT alone (tcp_reset).
    on_all("", |s| {
        let listener = s.listen();
        for (shut, expected) in [(false, EPIPE), (true, ECONNRESET)] {
            let fd = s.establish(listener);
            s.send(segment(FIN | ACK, 1, 1));
            s.expect(segment(ACK, 1, 2));
            assert_eq!(state(s, fd), CLOSE_WAIT);
            if shut {
                s.shutdown(fd, libc::SHUT_WR).unwrap();
                s.expect(segment(FIN | ACK, 1, 2));
                assert_eq!(state(s, fd), LAST_ACK);
            }
            s.send(segment(RST, 2, 0));
            s.sleep_ms(1);
            assert_eq!(s.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), expected);
            s.next_peer();
        }
    });
}

#[test]
fn a_listener_drops_what_is_neither_syn_nor_ack() {
    // RFC 9293 section 3.10.7.2, fourth.
    on_all("", |s| {
        s.listen();
        s.send(segment(FIN, 17, 0).payload(b"abc"));
        s.send(segment(PSH, 17, 0));
        s.silence(100);
        s.send(segment(ACK, 17, 55));
        assert_eq!(s.next().flags, RST, "an acknowledgement is answered");
        s.next_peer();
        s.send(segment(SYN, 27, 0));
        s.expect(segment(SYN | ACK, 0, 28));
    });
}

// Checks RFC 9293: SHLD-7, MUST-17.
#[test]
fn short_segments_are_collected_where_the_host_wants_it() {
    on_flextoe("nagle=true", |s| {
        let listener = s.listen();
        let fd = s.establish_with_sack(listener);
        s.write(fd, b"a").unwrap();
        s.expect(segment(ACK, 1, 1).payload(b"a"));
        s.write(fd, b"b").unwrap();
        s.write(fd, b"c").unwrap();
        s.silence(5);
        s.send(segment(ACK, 1, 2));
        s.expect(segment(ACK, 2, 1).payload(b"bc"));
        s.write(fd, b"d").unwrap();
        s.silence(5);
        s.set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &[1]);
        s.expect(segment(ACK, 4, 1).payload(b"d"));
        s.write(fd, b"e").unwrap();
        s.expect(segment(ACK, 5, 1).payload(b"e"));
    });
}

/// The option counts for an attempt that goes on.
#[test]
fn the_number_of_syns_changes_while_they_are_sent() {
    on_all("", |s| {
        let fd = s.next_client();
        assert_eq!(s.connect_again(fd), Err(libc::EINPROGRESS));
        s.expect(segment(SYN, 0, 0));
        s.set(fd, IPPROTO_TCP, libc::TCP_SYNCNT, &[1]);
        s.expect(segment(SYN, 0, 0));
        s.silence(2001);
        assert_eq!(s.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), libc::ETIMEDOUT);
    });
}

#[test]
fn an_attempt_ends_after_as_many_syns_as_the_program_says() {
    on_all("", |s| {
        let fd = s.next_client();
        s.set(fd, IPPROTO_TCP, libc::TCP_SYNCNT, &[1]);
        assert_eq!(s.connect_again(fd), Err(libc::EINPROGRESS));
        s.expect(segment(SYN, 0, 0));
        let begin = s.at_us;
        s.expect(segment(SYN, 0, 0));
        assert_eq!(s.at_us - begin, 1_000_000);
        // The time that a third one would have is over then.
        s.silence(1999);
        assert_eq!(s.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), 0);
        s.silence(2);
        assert_eq!(s.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), libc::ETIMEDOUT);
    });
}
