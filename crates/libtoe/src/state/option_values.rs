//! The options that sockets have.
use crate::state::fast_open::FastOpen;
use context::OptionName;
use libc::c_int;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// The options of a socket. Most sockets of a program have the same ones, and then they are there once. What a socket
/// changes is its own until another one has the same.
#[derive(Default, Clone)]
pub(crate) struct Options(Option<Arc<Values>>);

/// What a socket has on which none was set.
static NONE: Values = Values::none();

impl Deref for Options {
    type Target = Values;
    #[inline]
    fn deref(&self) -> &Values {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Options {
    fn deref_mut(&mut self) -> &mut Values {
        Arc::make_mut(self.0.get_or_insert_with(|| Arc::new(Values::none())))
    }
}

/// Options that were set lately, for sockets to share.
pub(crate) struct Recent {
    values: [Option<Arc<Values>>; RECENT],
    next: usize,
}

/// Programs set two or three options on a socket, one after the other: so many states it goes through.
const RECENT: usize = 8;

impl Recent {
    /// None yet.
    pub(crate) const fn new() -> Recent {
        Recent { values: [const { None }; RECENT], next: 0 }
    }

    /// Lets a socket that has changed its options share them with another one.
    pub(crate) fn share(&mut self, options: &mut Options) {
        let Some(values) = &mut options.0 else { return };
        match self.values.iter().flatten().find(|recent| *recent == values) {
            Some(same) => *values = Arc::clone(same),
            None => {
                self.values[self.next] = Some(Arc::clone(values));
                self.next = (self.next + 1) % RECENT;
            }
        }
    }
}

/// Options that the library acts upon.
#[derive(Clone, PartialEq)]
pub(crate) struct Values {
    /// `SO_REUSEADDR`.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`.
    pub reuse_port: bool,
    /// `SO_LINGER`, seconds; `None` where it is off.
    pub linger: Option<c_int>,
    /// `SO_RCVLOWAT`: bytes to read, from which on whoever waits is notified.
    pub(crate) low_mark: u32,
    /// `TCP_NOTSENT_LOWAT`: unsent bytes, below which more may be written; 0 where it was not set.
    pub(crate) unsent_mark: u32,
    /// `SO_RCVTIMEO`.
    pub receive_timeout: Option<Duration>,
    /// `SO_SNDTIMEO`.
    pub send_timeout: Option<Duration>,
    /// `TCP_CORK`.
    pub cork: bool,
    /// `SO_ZEROCOPY`.
    pub zero_copy: bool,
    /// `SO_OOBINLINE`: urgent bytes stay in the stream.
    pub(crate) inline_urgent: bool,
    /// `TCP_CONGESTION`, a code of `tcp::congestion`.
    pub congestion: u8,
    /// `TCP_SYNCNT`; 0 where it was not set.
    pub(crate) syn_retries: u8,
    /// `TCP_MAXSEG`; 0 where it was not set.
    pub mss: u16,
    /// `IPV6_V6ONLY`.
    pub v6_only: bool,
    /// Bytes of the receive buffer, where the program has set them (`SO_RCVBUF`).
    pub(crate) receive_size: Option<u32>,
    /// Bytes that may wait to be acknowledged, where the program has set them (`SO_SNDBUF`).
    pub(crate) send_limit: Option<u32>,
    /// Options of Fast Open.
    pub(crate) fast_open: FastOpen,
    /// Options for the control plane, kept for when there is a connection.
    pub(crate) for_flow: Vec<(OptionName, u64)>,
    /// Everything that was set, for accepted connections to inherit.
    pub(crate) set: Vec<(c_int, c_int, Vec<u8>)>,
}

impl Values {
    const fn none() -> Values {
        Values {
            reuse_address: false,
            reuse_port: false,
            linger: None,
            low_mark: 1,
            unsent_mark: 0,
            receive_timeout: None,
            send_timeout: None,
            cork: false,
            zero_copy: false,
            inline_urgent: false,
            congestion: 0,
            syn_retries: 0,
            mss: 0,
            v6_only: false,
            receive_size: None,
            send_limit: None,
            fast_open: FastOpen::NONE,
            for_flow: Vec::new(),
            set: Vec::new(),
        }
    }

    /// An option that a kernel socket in its place gets, too.
    pub(crate) fn remember(&mut self, level: c_int, name: c_int, value: &[u8]) {
        self.set.retain(|(l, n, _)| (*l, *n) != (level, name));
        self.set.push((level, name, value.to_vec()));
    }
}
