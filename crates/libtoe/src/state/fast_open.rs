//! Options of Fast Open (RFC 7413) that a program has set.
use context::{EarlyData, FastOpenKeys};
use libc::c_int;

/// A program's options of Fast Open.
#[derive(Clone, Copy, PartialEq, Default)]
pub(crate) struct FastOpen {
    /// `TCP_FASTOPEN`: connections of the listener whose handshake may be going on.
    pub(crate) most: u32,
    /// `TCP_FASTOPEN_KEY`.
    pub(crate) keys: FastOpenKeys,
    /// `TCP_FASTOPEN_NO_COOKIE`.
    pub(crate) no_cookie: bool,
    /// `TCP_FASTOPEN_CONNECT`, or `MSG_FASTOPEN` in the call that connects.
    pub(crate) connect: bool,
}

impl FastOpen {
    pub(crate) const NONE: FastOpen =
        FastOpen { most: 0, keys: FastOpenKeys { primary: None, backup: None }, no_cookie: false, connect: false };

    /// The requested operation.
    pub(crate) fn asked(&self) -> EarlyData {
        match (self.connect, self.no_cookie) {
            (false, _) => EarlyData::No,
            (true, false) => EarlyData::WithCookie,
            (true, true) => EarlyData::WithoutCookie,
        }
    }

    /// Takes an option; `false` where it is none of these.
    pub(crate) fn take(&mut self, name: c_int, number: c_int, value: &[u8]) -> bool {
        match name {
            libc::TCP_FASTOPEN => self.most = number.max(0) as u32,
            libc::TCP_FASTOPEN_CONNECT => self.connect = number != 0,
            libc::TCP_FASTOPEN_NO_COOKIE => self.no_cookie = number != 0,
            libc::TCP_FASTOPEN_KEY => {
                let key = |at: usize| value.get(at..at + 16).and_then(|key| key.try_into().ok());
                self.keys = FastOpenKeys { primary: key(0), backup: key(16) };
            }
            _ => return false,
        }
        true
    }

    /// `TCP_FASTOPEN_KEY`, to read: no key where the host's own are used.
    pub(crate) fn keys(&self) -> Vec<u8> {
        [self.keys.primary, self.keys.backup].into_iter().flatten().flatten().collect()
    }
}
