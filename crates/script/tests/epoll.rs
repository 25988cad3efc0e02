//! Packet scripts about sets of descriptors, and what comes beside data: the error queue, `TCP_INQ`.
mod form;

use form::*;
use libc::{
    EAGAIN, EEXIST, ENOENT, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN,
    EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, IPPROTO_TCP, MSG_ERRQUEUE, MSG_ZEROCOPY, SOL_SOCKET,
};

#[test]
fn a_level_lasts_until_what_it_tells_of_is_gone() {
    on_all("", |s| {
        let (listener, set) = (s.listen(), s.epoll());
        s.epoll_control(set, EPOLL_CTL_ADD, listener, EPOLLIN).unwrap();
        assert_eq!(s.epoll_control(set, EPOLL_CTL_ADD, listener, EPOLLIN), Err(EEXIST));
        assert!(s.epoll_wait(set, 0).is_empty());
        let fd = s.establish(listener);
        assert_eq!(s.epoll_control(set, EPOLL_CTL_MOD, fd, EPOLLIN), Err(ENOENT));
        s.epoll_control(set, EPOLL_CTL_ADD, fd, EPOLLIN).unwrap();
        assert!(s.epoll_wait(set, 0).is_empty(), "no connection waits any more, and no data came");
        s.send(segment(PSH | ACK, 1, 1).payload(b"there"));
        assert_eq!([s.epoll_wait(set, 0), s.epoll_wait(set, 0)], [[(EPOLLIN, fd)], [(EPOLLIN, fd)]]);
        s.read(fd).unwrap();
        assert!(s.epoll_wait(set, 0).is_empty());
        s.send(segment(RST | ACK, 6, 1));
        let [(events, _)] = s.epoll_wait(set, 0)[..] else { panic!("a reset is reported unasked") };
        assert_eq!(events & (EPOLLERR | EPOLLHUP), EPOLLERR | EPOLLHUP);
        s.epoll_control(set, EPOLL_CTL_DEL, fd, 0).unwrap();
        assert!(s.epoll_wait(set, 0).is_empty());
    });
}

#[test]
fn an_edge_is_reported_once_for_each_wake_up() {
    on_all("", |s| {
        let listener = s.listen();
        let (fd, set) = (s.establish(listener), s.epoll());
        s.epoll_control(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP).unwrap();
        assert_eq!(s.epoll_wait(set, 0), [(EPOLLOUT, fd)]);
        assert!(s.epoll_wait(set, 0).is_empty());
        for seq in [1, 3] {
            // What came before is still there: only what comes counts, and then all that is so is reported.
            s.send(segment(PSH | ACK, seq, 1).payload(b"ab"));
            assert_eq!(s.epoll_wait(set, 0), [(EPOLLIN | EPOLLOUT, fd)]);
            assert!(s.epoll_wait(set, 0).is_empty());
        }
        s.send(segment(FIN | ACK, 5, 1));
        assert_eq!(s.epoll_wait(set, 0), [(EPOLLIN | EPOLLOUT | EPOLLRDHUP, fd)]);
        // Who does not ask for what comes is not woken up by it.
        s.epoll_control(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT).unwrap();
        assert_eq!(s.epoll_wait(set, 0), [(EPOLLIN, fd)]);
        assert!(s.epoll_wait(set, 0).is_empty(), "once only");
        s.close(fd);
        assert_eq!(s.epoll_control(set, EPOLL_CTL_MOD, fd, EPOLLIN), Err(libc::EBADF));
    });
}

#[test]
fn a_full_buffer_wakes_up_once_a_third_is_free() {
    on_all("", |s| {
        let listener = s.listen();
        let (fd, set) = (s.establish(listener), s.epoll());
        s.set(fd, SOL_SOCKET, libc::SO_SNDBUF, &[4500]);
        s.epoll_control(set, EPOLL_CTL_ADD, fd, EPOLLOUT | EPOLLET).unwrap();
        assert_eq!(s.epoll_wait(set, 0), [(EPOLLOUT, fd)]);
        assert_eq!(s.write(fd, &[7; 10_000]), Ok(9000));
        for (acknowledged, woken) in [(1001, false), (2001, false), (3001, true), (4001, false)] {
            s.send(segment(ACK, 1, acknowledged));
            assert_eq!(!s.epoll_wait(set, 0).is_empty(), woken, "{acknowledged}");
        }
    });
}

#[test]
fn waiting_for_a_set_takes_virtual_time() {
    on_all("", |s| {
        let listener = s.listen();
        let (fd, set) = (s.establish(listener), s.epoll());
        s.epoll_control(set, EPOLL_CTL_ADD, fd, EPOLLIN).unwrap();
        let begin = s.now_us();
        assert!(s.epoll_wait(set, 30).is_empty());
        let waited = s.now_us() - begin;
        assert!((30_000..30_010).contains(&waited), "{waited} us");
    });
}

/// The first and last send of a notification (`sock_extended_err`), whose payload was copied.
fn sends_of(s: &Script, fd: libc::c_int) -> (u32, u32) {
    let (received, found) = s.receive_message(fd, 0, MSG_ERRQUEUE).unwrap();
    let (.., data) = found.unwrap();
    let word = |at: usize| u32::from_ne_bytes(data[at..at + 4].try_into().unwrap());
    // No error, of SO_EE_ORIGIN_ZEROCOPY, with SO_EE_CODE_ZEROCOPY_COPIED.
    assert_eq!((received, word(0), data[4], data[6]), (0, 0, 5, 1));
    (word(8), word(12))
}

#[test]
fn acknowledged_sends_without_copies_are_reported() {
    on_all("", |s| {
        let listener = s.listen();
        // An accepted connection has the options of its listener.
        s.set(listener, SOL_SOCKET, libc::SO_ZEROCOPY, &[1]);
        let fd = s.establish(listener);
        for _ in 0..3 {
            s.send_with(fd, b"abc", MSG_ZEROCOPY).unwrap();
        }
        s.write(fd, b"copied").unwrap();
        let nothing = |s: &Script| s.receive_message(fd, 0, MSG_ERRQUEUE).map(drop) == Err(EAGAIN);
        assert!(nothing(s) && s.poll(fd) & libc::POLLERR == 0);
        s.send(segment(ACK, 1, 8));
        assert_eq!(s.poll(fd) & libc::POLLERR, libc::POLLERR);
        assert_eq!(sends_of(s, fd), (0, 1));
        s.send(segment(ACK, 1, 16));
        assert_eq!((sends_of(s, fd), nothing(s)), ((2, 2), true));
        // Without the option, the flag has no effect.
        s.set(fd, SOL_SOCKET, libc::SO_ZEROCOPY, &[0]);
        s.send_with(fd, b"abc", MSG_ZEROCOPY).unwrap();
        s.send(segment(ACK, 1, 19));
        assert!(nothing(s));
    });
}

#[test]
fn what_is_left_to_read_comes_beside_the_data() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.set(fd, IPPROTO_TCP, libc::TCP_INQ, &[1]);
        let left = |s: &Script, most| {
            let (received, found) = s.receive_message(fd, most, 0).unwrap();
            let (level, kind, data) = found.unwrap();
            assert_eq!((level, kind, received), (IPPROTO_TCP, libc::TCP_CM_INQ, most));
            u32::from_ne_bytes(data.try_into().unwrap())
        };
        s.send(segment(PSH | ACK, 1, 1).payload(b"question"));
        assert_eq!([left(s, 3), left(s, 5)], [5, 0]);
        s.send(segment(FIN | ACK, 9, 1).payload(b"end"));
        assert_eq!(left(s, 3), 1, "the end counts as a byte");
    });
}
