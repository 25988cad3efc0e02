//! Messages with descriptors over a UNIX seqpacket socket, and the credentials of the peer.
use crate::system_call;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Most descriptors in one message.
pub const MAX_FDS: usize = 4;
/// Most bytes in one message; a longer one is an error on both sides.
pub const MAX_MESSAGE: usize = 16 * 1024;

/// Credentials of the other end of a UNIX socket, by the kernel (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// Process id when the socket was connected.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// A listening UNIX seqpacket socket at `path`; a stale socket file is replaced. `SOCK_CLOEXEC`, non-blocking.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let fd = seqpacket(libc::SOCK_NONBLOCK)?;
    let (address, len) = unix_address(path)?;
    let _ = std::fs::remove_file(path);
    // SAFETY: bind and listen on an owned descriptor with an address built above.
    let done = unsafe {
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) == 0 && libc::listen(fd.as_raw_fd(), 128) == 0
    };
    if done { Ok(fd) } else { Err(io::Error::last_os_error()) }
}

/// Accepts a connection from [`listen`]'s socket; the new socket is blocking.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the result is checked and owned at once.
    let fd =
        unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd is fresh and valid.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Connects to a UNIX seqpacket socket at `path`; the socket is blocking.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let fd = seqpacket(0)?;
    let (address, len) = unix_address(path)?;
    let arguments = [fd.as_raw_fd() as usize, (&raw const address).expose_provenance(), len as usize, 0, 0, 0];
    // SAFETY: connect on an owned descriptor with an address built above. Made directly: libtoe interposes `connect`.
    unsafe { system_call::call(libc::SYS_connect, arguments) }.map(|_| fd)
}

/// Credentials of the other end.
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: the buffer is a local ucred and its size is passed.
    unsafe { socket_option(socket, libc::SO_PEERCRED, (&raw mut cred).cast(), size_of::<libc::ucred>()) }?;
    Ok(Credentials { pid: cred.pid, uid: cred.uid, gid: cred.gid })
}

/// The supplementary groups of the other end (Linux 4.13).
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // As many as Linux gives a process (NGROUPS_MAX).
    let mut groups = vec![0u32; 65_536];
    let room = size_of_val(groups.as_slice());
    // SAFETY: the buffer is a local vector and its size is passed.
    let len = unsafe { socket_option(socket, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), room) }?;
    groups.truncate(len / size_of::<u32>());
    Ok(groups)
}

/// Reads an option of the socket level; returns its length in bytes. Made directly: libtoe interposes `getsockopt`.
///
/// # Safety
/// `value` has room for `room` bytes.
unsafe fn socket_option(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: *mut libc::c_void,
    room: usize,
) -> io::Result<usize> {
    let mut len = room as libc::socklen_t;
    let (fd, level) = (socket.as_raw_fd() as usize, libc::SOL_SOCKET as usize);
    let arguments = [fd, level, option as usize, value.expose_provenance(), (&raw mut len).expose_provenance(), 0];
    // SAFETY: as the caller guarantees; the length is a local.
    unsafe { system_call::call(libc::SYS_getsockopt, arguments) }?;
    Ok(len as usize)
}

/// Sends one message with descriptors.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, message, fds, 0)
}

/// The same, to a peer that may not read what it is sent: fails where there is no room.
pub fn send_at_once(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, message, fds, libc::MSG_DONTWAIT)
}

fn send_with(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>], flags: libc::c_int) -> io::Result<()> {
    if message.len() > MAX_MESSAGE || fds.len() > MAX_FDS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let mut iov = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let mut control = [0u64; 8];
    // SAFETY: msghdr points at locals that outlive the call; the control buffer is aligned and large enough for
    // MAX_FDS descriptors (CMSG_SPACE(16) = 32 bytes).
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;
        if !raw.is_empty() {
            let bytes = size_of_val(raw.as_slice());
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as usize;
            let cmsg = libc::CMSG_FIRSTHDR(&header);
            (*cmsg).cmsg_level = libc::SOL_SOCKET;
            (*cmsg).cmsg_type = libc::SCM_RIGHTS;
            (*cmsg).cmsg_len = libc::CMSG_LEN(bytes as u32) as usize;
            std::ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), libc::CMSG_DATA(cmsg), bytes);
        }
        let (fd, flags) = (socket.as_raw_fd() as usize, (libc::MSG_NOSIGNAL | flags) as usize);
        system_call::call(libc::SYS_sendmsg, [fd, (&raw const header).expose_provenance(), flags, 0, 0, 0]).map(drop)
    }
}

/// Receives one message and takes no descriptors, whatever the other end sends: closing one that an untrusted peer
/// chose may wait for it. No bytes means that the other end closed.
pub fn recv_bytes(socket: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut message = vec![0u8; MAX_MESSAGE];
    // SAFETY: receives into a local buffer of this length, without room for control messages. Made directly: libtoe
    // interposes `recv`.
    let len = unsafe {
        let (fd, at, most) = (socket.as_raw_fd() as usize, message.as_mut_ptr().expose_provenance(), message.len());
        system_call::call(libc::SYS_recvfrom, [fd, at, most, libc::MSG_TRUNC as usize, 0, 0])?
    };
    if len > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was longer than the protocol allows"));
    }
    message.truncate(len);
    Ok(message)
}

/// The next message, which stays. No bytes means that the other end closed.
pub fn peek(socket: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut message = vec![0u8; MAX_MESSAGE];
    // SAFETY: as in `recv_bytes`.
    let len = unsafe {
        let (fd, at, most) = (socket.as_raw_fd() as usize, message.as_mut_ptr().expose_provenance(), message.len());
        system_call::call(libc::SYS_recvfrom, [fd, at, most, libc::MSG_PEEK as usize, 0, 0])?
    };
    message.truncate(len);
    Ok(message)
}

/// Receives one message with its descriptors. No bytes means that the other end closed.
pub fn recv(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut message = vec![0u8; MAX_MESSAGE];
    let mut iov = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: message.len() };
    let mut control = [0u64; 8];
    let mut fds = Vec::new();
    // SAFETY: msghdr points at locals that outlive the call; control messages are walked with the CMSG macros,
    // and each descriptor found is owned at once.
    let (len, truncated) = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        let (fd, flags) = (socket.as_raw_fd() as usize, libc::MSG_CMSG_CLOEXEC as usize);
        let len = system_call::call(libc::SYS_recvmsg, [fd, (&raw mut header).expose_provenance(), flags, 0, 0, 0])?;
        let mut cmsg = libc::CMSG_FIRSTHDR(&header);
        while !cmsg.is_null() {
            if (*cmsg).cmsg_level == libc::SOL_SOCKET && (*cmsg).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*cmsg).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                for i in 0..count {
                    let fd = std::ptr::read_unaligned(libc::CMSG_DATA(cmsg).cast::<RawFd>().add(i));
                    fds.push(OwnedFd::from_raw_fd(fd));
                }
            }
            cmsg = libc::CMSG_NXTHDR(&header, cmsg);
        }
        (len, header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0)
    };
    if truncated {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was longer than the protocol allows"));
    }
    message.truncate(len);
    Ok((message, fds))
}

/// Two connected seqpacket sockets.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as usize;
    let arguments = [libc::AF_UNIX as usize, kind, 0, (&raw mut ends).expose_provenance(), 0, 0];
    // SAFETY: room for two descriptors, which are owned at once.
    unsafe {
        system_call::call(libc::SYS_socketpair, arguments)?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Whether a descriptor is a UNIX seqpacket socket whose next message begins with `bytes`. The message stays.
pub fn begins_with(fd: BorrowedFd<'_>, bytes: &[u8]) -> bool {
    let option = |name| {
        let mut value: libc::c_int = 0;
        // SAFETY: the buffer is a local and its size is passed.
        unsafe { socket_option(fd, name, (&raw mut value).cast(), size_of::<libc::c_int>()) }.ok().map(|_| value)
    };
    if option(libc::SO_DOMAIN) != Some(libc::AF_UNIX) || option(libc::SO_TYPE) != Some(libc::SOCK_SEQPACKET) {
        return false;
    }
    let mut found = vec![0u8; bytes.len()];
    let flags = (libc::MSG_PEEK | libc::MSG_DONTWAIT) as usize;
    let arguments = [fd.as_raw_fd() as usize, found.as_mut_ptr().expose_provenance(), found.len(), flags, 0, 0];
    // SAFETY: receives into a local buffer of this length.
    let len = unsafe { system_call::call(libc::SYS_recvfrom, arguments) };
    len.is_ok_and(|len| len == bytes.len()) && found == bytes
}

fn seqpacket(flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags) as usize;
    // SAFETY: a plain system call (made directly: libtoe interposes `socket`), checked and owned at once.
    let fd = unsafe { system_call::call(libc::SYS_socket, [libc::AF_UNIX as usize, kind, 0, 0, 0, 0]) }?;
    // SAFETY: fd is fresh and valid.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn unix_address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: sockaddr_un is plain data for which zero is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket's path is longer than 107 bytes"));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_message_is_recognised_before_it_is_taken() {
        let (here, there) = pair().unwrap();
        assert!(!begins_with(there.as_fd(), b"hello"), "nothing came");
        send(here.as_fd(), b"hello there", &[here.as_fd()]).unwrap();
        assert!(begins_with(there.as_fd(), b"hello") && !begins_with(there.as_fd(), b"hallo"));
        let (message, fds) = recv(there.as_fd()).unwrap();
        assert_eq!((message.as_slice(), fds.len()), (&b"hello there"[..], 1));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!begins_with(file.as_fd(), b""), "no socket");
    }

    #[test]
    fn hands_over_a_descriptor_and_credentials() {
        let path = std::env::temp_dir().join(format!("toe-handover-{}", std::process::id()));
        let listener = listen(&path).unwrap();
        let client = connect(&path).unwrap();
        let server = accept(listener.as_fd()).unwrap();
        assert_eq!(credentials(server.as_fd()).unwrap().pid, std::process::id() as i32);
        assert!(groups(server.as_fd()).is_ok());
        send(server.as_fd(), b"hello", &[listener.as_fd(), server.as_fd()]).unwrap();
        let (message, fds) = recv(client.as_fd()).unwrap();
        assert_eq!((message.as_slice(), fds.len()), (&b"hello"[..], 2));
        send(client.as_fd(), b"take this", &[listener.as_fd()]).unwrap();
        assert_eq!(peek(server.as_fd()).unwrap(), b"take this");
        assert_eq!(recv_bytes(server.as_fd()).unwrap(), b"take this");
        send(client.as_fd(), &[1; MAX_MESSAGE], &[]).unwrap();
        assert_eq!(recv_bytes(server.as_fd()).unwrap().len(), MAX_MESSAGE);
        drop((server, fds));
        assert!(recv(client.as_fd()).unwrap().0.is_empty());
        std::fs::remove_file(path).unwrap();
    }
}
