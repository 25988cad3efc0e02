//! Packet scripts about data of a SYN (TCP Fast Open, RFC 7413), of clients.
mod form;

use form::*;
use libc::{EINPROGRESS, EISCONN, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, c_int};
use wire::tcp::Cookie;

const REQUEST: Option<Cookie> = Some(Cookie::REQUEST);

fn cookie() -> Option<Cookie> {
    Cookie::new(b"biscuits")
}

/// The SYN asks for a cookie, carries no data, and is answered with one. The connection is reset then.
fn learn_cookie(s: &mut Script, cookie: Option<Cookie>) {
    let fd = s.next_client();
    assert_eq!(s.send_early(fd, b"question"), Err(EINPROGRESS));
    assert_eq!(s.expect(segment(SYN, 0, 0)).fast_open, REQUEST);
    s.send(segment(SYN | ACK, 0, 1).mss(1000).fast_open(cookie));
    s.expect(segment(ACK, 1, 1));
    s.send(segment(RST | ACK, 1, 1));
    s.close(fd);
}

/// A call that may not wait does not, whatever the socket does.
#[test]
fn a_call_that_may_not_wait_asks_for_a_cookie() {
    on_all("", |s| {
        let fd = s.next_client();
        s.set_blocking(fd, true);
        let before = s.now_us();
        assert_eq!(s.send_early_with(fd, b"question", libc::MSG_DONTWAIT), Err(EINPROGRESS));
        assert!(s.now_us() - before < 1000, "it waited");
        assert_eq!(s.expect(segment(SYN, 0, 0)).fast_open, REQUEST);
    });
}

/// A client whose SYN has the cookie and this data.
fn early(s: &mut Script, data: &[u8]) -> c_int {
    let fd = s.next_client();
    assert_eq!(s.send_early(fd, data), Ok(data.len()));
    let syn = s.expect(segment(SYN, 0, 0).payload(data));
    assert_eq!(syn.fast_open.map(|cookie| cookie.bytes().to_vec()), cookie().map(|cookie| cookie.bytes().to_vec()));
    fd
}

// Checks RFC 7413: 4.2.1-a, 4.1.3-a.
#[test]
fn the_second_connection_sends_data_with_its_syn() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        let fd = early(s, b"question");
        s.send(segment(SYN | ACK, 0, 9).mss(1000));
        s.expect(segment(ACK, 9, 1));
        // `tcpi_options`: the data was acknowledged with the SYN.
        assert_eq!(Script::libc_get(fd, IPPROTO_TCP, libc::TCP_INFO)[5] & 32, 32);
        s.write(fd, b"more").unwrap();
        s.expect(segment(ACK, 9, 1).payload(b"more"));
        s.send(segment(ACK, 1, 13).payload(b"answer"));
        s.sleep_ms(1);
        assert_eq!(s.read(fd).unwrap(), b"answer");
    });
}

// Checks RFC 7413: 4.2.1-c.
/// A server that takes the SYN alone, or a part of its data, gets the rest with the acknowledgement of its SYN-ACK.
#[test]
fn what_the_syn_ack_does_not_acknowledge_is_sent_again() {
    for taken in [1, 4] {
        on_all("", |s| {
            learn_cookie(s, cookie());
            early(s, b"question");
            s.send(segment(SYN | ACK, 0, taken).mss(1000));
            s.expect(segment(ACK, taken, 1).payload(&b"question"[taken as usize - 1..]));
        });
    }
}

/// With a window of 0 nothing else acknowledges.
#[test]
fn a_closed_window_gets_an_acknowledgement_alone() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        early(s, b"question");
        s.send(segment(SYN | ACK, 0, 1).mss(1000).window(0));
        s.expect(segment(ACK, 1, 1));
        s.send(segment(ACK, 1, 1).window(100));
        s.expect(segment(ACK, 1, 1).payload(b"question"));
    });
}

/// What fits a small window acknowledges as well: nothing waits until a full segment may go.
#[test]
fn a_small_window_is_filled_at_once() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        early(s, b"question");
        s.send(segment(SYN | ACK, 0, 1).mss(1000).window(4));
        s.expect(segment(ACK, 1, 1).payload(b"ques"));
        s.send(segment(ACK, 1, 5).window(4));
        s.expect(segment(ACK, 5, 1).payload(b"tion"));
    });
}

/// A call that waits for the connection has given all its bytes before: what the SYN had no room for goes with the
/// acknowledgement of the SYN-ACK.
#[test]
fn the_rest_of_a_call_that_waits_acknowledges_the_syn_ack() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        let fd = s.next_client();
        s.set_blocking(fd, true);
        let bytes: Vec<u8> = (0..1500).map(|at| at as u8).collect();
        let (caller, begun) = (s.twin(), std::sync::Barrier::new(2));
        let sent = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // No time passes from here on before this thread waits.
                caller.now_us();
                begun.wait();
                caller.send_early(fd, &bytes)
            });
            begun.wait();
            s.expect(segment(SYN, 0, 0).payload(&bytes[..960]));
            s.send(segment(SYN | ACK, 0, 961).mss(1000));
            s.expect(segment(ACK, 961, 1).payload(&bytes[960..]));
            s.sleep_ms(1);
            writer.join().unwrap()
        });
        assert_eq!(sent, Ok(1500));
    });
}

/// Programs with `MSG_ZEROCOPY` are notified of the bytes that went with the SYN, too.
#[test]
fn the_data_of_a_syn_has_a_notification() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        let fd = s.next_client();
        s.set(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &[1]);
        assert_eq!(s.send_early_with(fd, b"question", libc::MSG_ZEROCOPY), Ok(8));
        s.expect(segment(SYN, 0, 0).payload(b"question"));
        s.send(segment(SYN | ACK, 0, 9).mss(1000));
        s.expect(segment(ACK, 9, 1));
        assert!(s.receive_message(fd, 0, libc::MSG_ERRQUEUE).unwrap().1.is_some());
    });
}

// Checks RFC 7413: 4.1.3.1-a, 4.1.3.1-b.
#[test]
fn a_syn_that_is_sent_again_carries_nothing() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        let fd = early(s, b"question");
        let again = s.expect(segment(SYN, 0, 0));
        assert_eq!(again.fast_open, None);
        s.send(segment(SYN | ACK, 0, 1).mss(1000));
        s.expect(segment(ACK, 1, 1).payload(b"question"));
        s.send(segment(RST | ACK, 1, 9));
        s.close(fd);
        // The path seems to lose what has the option: the next SYN does without.
        let fd = s.next_client();
        assert_eq!(s.send_early(fd, b"question"), Err(EINPROGRESS));
        assert_eq!(s.expect(segment(SYN, 0, 0)).fast_open, None);
    });
}

/// `TCP_FASTOPEN_CONNECT`: `connect` succeeds at once, and the first write goes with the SYN.
#[test]
fn the_first_write_goes_with_the_syn() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        let fd = s.next_client();
        s.set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &[1]);
        assert_eq!(s.connect_again(fd), Ok(0));
        s.silence(100);
        assert_eq!((s.poll(fd) & libc::POLLOUT, s.connect_again(fd)), (libc::POLLOUT, Err(EISCONN)));
        s.write(fd, b"question").unwrap();
        s.expect(segment(SYN, 0, 0).payload(b"question"));
        s.send(segment(SYN | ACK, 0, 9).mss(1000));
        s.expect(segment(ACK, 9, 1));
        s.close(fd);
        s.expect(segment(FIN | ACK, 9, 1));
    });
}

/// `MSG_FASTOPEN` after a `connect` that waits for data gives it that data. Without bytes, the call only connects.
#[test]
fn a_connect_that_waits_for_data_gets_it_from_any_write() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        let fd = s.next_client();
        s.set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &[1]);
        assert_eq!(s.connect_again(fd), Ok(0));
        assert_eq!(s.send_early(fd, b"question"), Ok(8));
        s.expect(segment(SYN, 0, 0).payload(b"question"));
        let fd = s.next_client();
        assert_eq!(s.send_early(fd, b""), Err(EINPROGRESS));
        assert!(s.expect(segment(SYN, 0, 0)).fast_open.is_some());
        assert_eq!(s.send_early(fd, b"question"), Err(libc::EALREADY));
        let fd = s.next_client();
        assert_eq!(s.send_early_nowhere(fd), Err(libc::EOPNOTSUPP));
    });
}

/// No more than fits goes with the SYN: the peer's segment size, without room for options.
#[test]
fn a_syn_has_a_segment_of_data_at_most() {
    on_all("", |s| {
        learn_cookie(s, cookie());
        let fd = s.next_client();
        assert_eq!(s.send_early(fd, &[7; 1500]), Ok(960));
        assert_eq!(s.next().payload.len(), 960);
        s.send(segment(SYN | ACK, 0, 961).mss(1000));
        s.expect(segment(ACK, 961, 1));
        s.write(fd, b"rest").unwrap();
        s.expect(segment(ACK, 961, 1).payload(b"rest"));
    });
}

/// A server of before RFC 7413 answers in the old option, and gets its cookie back in it.
#[test]
fn an_experimental_cookie_comes_back_in_its_option() {
    on_all("", |s| {
        let old = cookie().map(|cookie| cookie.as_in(Cookie::EXPERIMENTAL_REQUEST));
        learn_cookie(s, old);
        let fd = s.next_client();
        assert_eq!(s.send_early(fd, b"question"), Ok(8));
        assert_eq!(s.expect(segment(SYN, 0, 0).payload(b"question")).fast_open, old);
    });
}

/// Data without a cookie (bit 4 of Linux's `tcp_fastopen`); and none at all where clients may not.
#[test]
fn the_host_says_whether_clients_send_data() {
    on_all("fast_open=5", |s| {
        let fd = s.next_client();
        assert_eq!(s.send_early(fd, b"question"), Ok(8));
        assert_eq!(s.expect(segment(SYN, 0, 0).payload(b"question")).fast_open, None);
        // The next SYN has no more than the peer takes in a segment.
        s.send(segment(SYN | ACK, 0, 9).mss(700));
        s.expect(segment(ACK, 9, 1));
        let fd = s.next_client();
        assert_eq!(s.send_early(fd, &[7; 1500]), Ok(660));
    });
    on_all("fast_open=0", |s| {
        let fd = s.next_client();
        assert_eq!(s.send_early(fd, b"question"), Err(libc::EOPNOTSUPP));
        let on = s.try_set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &[1]);
        assert_eq!(on, Err(libc::EOPNOTSUPP));
    });
}
