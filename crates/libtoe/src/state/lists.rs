//! Additions to the kernel's lists of interfaces, until the program receives them ([`crate::interfaces`]).
use std::collections::VecDeque;
use std::os::fd::RawFd;

/// Messages for netlink sockets.
pub(crate) struct Lists(VecDeque<(RawFd, Vec<u8>)>);

impl Lists {
    /// None.
    pub(crate) const fn new() -> Lists {
        Lists(VecDeque::new())
    }

    /// One more for a socket.
    pub(crate) fn push(&mut self, fd: RawFd, message: Vec<u8>) {
        self.0.push_back((fd, message));
    }

    /// A socket's oldest one.
    pub(crate) fn first(&self, fd: RawFd) -> Option<&[u8]> {
        self.0.iter().find(|(of, _)| *of == fd).map(|(_, message)| message.as_slice())
    }

    /// It was received.
    pub(crate) fn take(&mut self, fd: RawFd) {
        if let Some(at) = self.0.iter().position(|(of, _)| *of == fd) {
            self.0.remove(at);
        }
    }

    /// The socket is gone, and all that it had.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        self.0.retain(|(of, _)| *of != fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_has_its_own_in_order() {
        let mut lists = Lists::new();
        [(3, 1), (4, 2), (3, 3)].into_iter().for_each(|(fd, byte)| lists.push(fd, vec![byte]));
        assert_eq!(lists.first(3), Some(&[1][..]));
        lists.take(3);
        assert_eq!((lists.first(3), lists.first(4)), (Some(&[3][..]), Some(&[2][..])));
        lists.forget(3);
        assert_eq!((lists.first(3), lists.first(4)), (None, Some(&[2][..])));
    }
}
