//! State of a TCP socket of the kernel.
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that a program wrote into a TCP socket and the peer has not acknowledged; a FIN counts as one (`SIOCOUTQ`,
/// tcp(7)).
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int through the pointer, which is valid for the call.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { Ok(bytes.max(0) as u32) } else { Err(io::Error::last_os_error()) }
}

/// The kernel TCP's state of a connection (`TCP_INFO`, tcp(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelTcp {
    /// `None` for a state that RFC 9293 does not name.
    pub state: Option<wire::tcp::State>,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Congestion window and slow-start threshold, segments.
    pub cwnd: u32,
    /// See [`KernelTcp::cwnd`].
    pub ssthresh: u32,
    /// Smoothed round-trip time, its mean deviation, and the retransmission timeout, microseconds.
    pub rtt_us: u32,
    /// See [`KernelTcp::rtt_us`].
    pub rttvar_us: u32,
    /// See [`KernelTcp::rtt_us`].
    pub rto_us: u32,
    /// Segments that are sent and not acknowledged, and those of them that SACK blocks name.
    pub outstanding: u32,
    /// See [`KernelTcp::outstanding`].
    pub sacked: u32,
    /// Segments that were sent again, ever.
    pub resent: u32,
}

/// The kernel TCP's state of the connection of this socket.
pub fn kernel_tcp(socket: impl AsFd) -> io::Result<KernelTcp> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes through the pointer, which is valid for so many.
    let done =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, and any bytes are numbers.
    let info = unsafe { info.assume_init() };
    Ok(KernelTcp {
        state: wire::tcp::State::ALL.into_iter().find(|state| state.number() == info.tcpi_state),
        mss: info.tcpi_snd_mss,
        cwnd: info.tcpi_snd_cwnd,
        ssthresh: info.tcpi_snd_ssthresh,
        rtt_us: info.tcpi_rtt,
        rttvar_us: info.tcpi_rttvar,
        rto_us: info.tcpi_rto,
        outstanding: info.tcpi_unacked,
        sacked: info.tcpi_sacked,
        resent: info.tcpi_total_retrans,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_over_loopback_is_established() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = kernel_tcp(&socket).unwrap();
        assert_eq!((info.state, info.resent), (Some(wire::tcp::State::Established), 0));
        assert!(info.cwnd > 0 && info.mss > 0 && info.rto_us > 0, "{info:?}");
        assert!(kernel_tcp(std::io::stderr()).is_err());
    }
}
