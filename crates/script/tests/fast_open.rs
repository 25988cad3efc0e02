//! Packet scripts about data of a SYN (TCP Fast Open, RFC 7413), to listeners; and what `tcp_fastopen` and
//! `tcp_timestamps` of Linux are here.
mod form;

use form::*;
use libc::{IPPROTO_TCP, TCP_FASTOPEN, c_int};
use wire::tcp::Cookie;

/// A listener with Fast Open, and the cookie that the peer gets with an ordinary connection.
fn with_cookie(s: &mut Script) -> (c_int, Cookie) {
    let listener = s.listen();
    s.set(listener, IPPROTO_TCP, TCP_FASTOPEN, &[5]);
    s.send(segment(SYN, 0, 0).mss(1000).fast_open(Some(Cookie::REQUEST)));
    let cookie = s.expect(segment(SYN | ACK, 0, 1)).fast_open.expect("a cookie");
    s.send(segment(ACK, 1, 1));
    s.accept(listener).unwrap();
    s.next_peer();
    (listener, cookie)
}

/// The next segment with payload. An acknowledgement may go before it.
fn next_data(s: &mut Script) -> Segment {
    let found = s.next();
    if found.payload.is_empty() { s.next() } else { found }
}

// Checks RFC 7413: 4.2.2-b, 4.2.2-c.
#[test]
fn data_of_a_syn_is_read_and_answered_before_the_handshake_ends() {
    on_all("", |s| {
        let (listener, cookie) = with_cookie(s);
        s.send(segment(SYN, 0, 0).mss(1000).fast_open(Some(cookie)).payload(b"question"));
        assert_eq!(s.expect(segment(SYN | ACK, 0, 9)).fast_open, None, "the peer has the cookie");
        let fd = s.accept(listener).unwrap();
        assert_eq!(s.read(fd).unwrap(), b"question");
        s.write(fd, b"answer").unwrap();
        let answer = next_data(s);
        assert_eq!((answer.flags, answer.seq, answer.ack, answer.payload), (ACK, 1, 9, b"answer".to_vec()));
        s.send(segment(ACK, 9, 7).payload(b"more"));
        s.sleep_ms(1);
        assert_eq!(s.read(fd).unwrap(), b"more");
    });
}

/// `TCP_INFO` until the SYN-ACK is acknowledged: SYN-RECEIVED, and nothing is delivered. Then the SYN is.
#[test]
fn a_connection_that_began_with_data_is_in_syn_received() {
    on_all("", |s| {
        let (listener, cookie) = with_cookie(s);
        s.send(segment(SYN, 0, 0).mss(1000).fast_open(Some(cookie)).payload(b"question"));
        s.expect(segment(SYN | ACK, 0, 9));
        let fd = s.accept(listener).unwrap();
        let figures = |fd| {
            let info = Script::libc_get(fd, IPPROTO_TCP, libc::TCP_INFO);
            (info[0], u32::from_ne_bytes(info[192..196].try_into().unwrap()))
        };
        assert_eq!(figures(fd), (3, 0));
        s.send(segment(ACK, 9, 1));
        assert_eq!(figures(fd), (1, 1));
        s.write(fd, &[7; 1500]).unwrap();
        s.sleep_ms(1);
        s.send(segment(ACK, 9, 1501));
        assert_eq!(figures(fd), (1, 3), "two full segments or one and a half");
    });
}

// Checks RFC 7413: 4.1.2-a, 4.2.2-a.
#[test]
fn data_with_a_wrong_cookie_is_left_to_come_again() {
    on_all("", |s| {
        let (listener, cookie) = with_cookie(s);
        let wrong = Cookie::new(&[0; 8]);
        s.send(segment(SYN, 0, 0).mss(1000).fast_open(wrong).payload(b"early"));
        assert_eq!(s.expect(segment(SYN | ACK, 0, 1)).fast_open, Some(cookie));
        assert_eq!(s.accept(listener), Err(libc::EAGAIN));
        s.send(segment(ACK, 1, 1).payload(b"early"));
        s.sleep_ms(1);
        let fd = s.accept(listener).unwrap();
        assert_eq!(s.read(fd).unwrap(), b"early");
    });
}

/// The SYN-ACK has acknowledged the SYN's data: FlexTOE does not do so once more. What follows it acknowledges.
#[test]
fn data_of_a_syn_is_acknowledged_once() {
    on_flextoe("", |s| {
        let (listener, cookie) = with_cookie(s);
        s.send(segment(SYN, 0, 0).mss(1000).fast_open(Some(cookie)).payload(b"early"));
        s.expect(segment(SYN | ACK, 0, 6));
        let fd = s.accept(listener).unwrap();
        s.send(segment(ACK, 6, 1));
        s.silence(100);
        assert_eq!(s.read(fd).unwrap(), b"early");
        s.send(segment(ACK, 6, 1).payload(b"more"));
        s.expect(segment(ACK, 1, 10));
        // The SYN's data as a segment of its own: an old one, which is answered.
        s.send(segment(ACK, 1, 1).payload(b"early"));
        s.expect(segment(ACK, 1, 10));
    });
}

/// The SYN-ACK comes again until the peer answers it. So it does where the program has sent and closed meanwhile.
#[test]
fn the_syn_ack_is_repeated_until_it_is_answered() {
    on_all("", |s| {
        let (listener, cookie) = with_cookie(s);
        s.send(segment(SYN, 0, 0).mss(1000).fast_open(Some(cookie)).payload(b"early"));
        let first = s.expect(segment(SYN | ACK, 0, 6));
        s.accept(listener).unwrap();
        s.sleep_ms(500);
        let again = (0..3).map(|_| s.next()).find(|found| found.flags.has(SYN)).expect("the SYN-ACK again");
        assert_eq!((again.seq, again.ack, again.mss), (first.seq, first.ack, first.mss));
        s.send(segment(ACK, 6, 1));
        s.silence(20_000);
    });
}

/// The option from before RFC 7413, which the SYN-ACK answers in its form. The listener asks for nothing: Linux's
/// `tcp_fastopen` and `tcp_fastopen_key` are set so.
#[test]
fn an_experimental_option_gets_an_experimental_cookie() {
    let key = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4";
    on_all(&format!("fast_open=0x403,fast_open_key={key}"), |s| {
        let listener = s.listen();
        s.send(segment(SYN, 0, 0).mss(1000).fast_open(Some(Cookie::EXPERIMENTAL_REQUEST)));
        let cookie = s.expect(segment(SYN | ACK, 0, 1)).fast_open.expect("a cookie");
        assert_eq!(cookie, cookie.as_in(Cookie::EXPERIMENTAL_REQUEST));
        s.send(segment(ACK, 1, 1));
        s.accept(listener).unwrap();
        s.next_peer();
        s.send(segment(SYN, 0, 0).mss(1000).fast_open(Some(cookie)).payload(b"early"));
        s.expect(segment(SYN | ACK, 0, 6));
        let fd = s.accept(listener).unwrap();
        assert_eq!(s.read(fd).unwrap(), b"early");
        // Both options have one cookie.
        s.send(segment(ACK, 6, 1));
        s.next_peer();
        s.send(segment(SYN, 0, 0).mss(1000).fast_open(Some(cookie.as_in(Cookie::REQUEST))).payload(b"early"));
        s.expect(segment(SYN | ACK, 0, 6));
    });
}

/// A listener takes data of everybody (bit 0x200 of Linux's `tcp_fastopen`).
#[test]
fn without_cookies_data_of_any_syn_is_taken() {
    on_all("fast_open=0x602", |s| {
        let listener = s.listen();
        s.send(segment(SYN, 0, 0).mss(1000).payload(b"early"));
        s.expect(segment(SYN | ACK, 0, 6));
        let fd = s.accept(listener).unwrap();
        assert_eq!(s.read(fd).unwrap(), b"early");
    });
}

/// Linux's `tcp_timestamps`: the option is neither offered nor agreed on.
#[test]
fn a_host_does_without_timestamps() {
    for (flags, has) in [("timestamps=false", false), ("timestamps=true", true)] {
        on_flextoe(flags, |s| {
            let listener = s.listen();
            s.send(segment(SYN, 0, 0).mss(1000).timestamps());
            assert_eq!(s.expect(segment(SYN | ACK, 0, 1)).timestamps, has);
            let _ = s.accept(listener);
            let fd = s.next_client();
            assert_eq!(s.connect_again(fd), Err(libc::EINPROGRESS));
            assert_eq!(s.expect(segment(SYN, 0, 0)).timestamps, has);
        });
    }
}
