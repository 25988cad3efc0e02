//! The cookie of the Fast Open option (RFC 7413 section 4.1.1).

/// A Fast Open cookie: 4 to 16 bytes, an even number of them; or none, which asks for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Cookie {
    len: u8,
    bytes: [u8; Cookie::MOST],
}

impl Cookie {
    /// Kind of the option.
    pub const OPTION: u8 = 34;
    /// Bytes of the longest one.
    pub const MOST: usize = 16;
    /// Asks for a cookie.
    pub const REQUEST: Cookie = Cookie { len: 0, bytes: [0; Cookie::MOST] };

    /// The cookie of these bytes; `None` where their number is not allowed.
    pub fn new(bytes: &[u8]) -> Option<Cookie> {
        let len = bytes.len();
        if len != 0 && (!(4..=Cookie::MOST).contains(&len) || len % 2 != 0) {
            return None;
        }
        let mut cookie = Cookie { len: len as u8, ..Cookie::REQUEST };
        cookie.bytes[..len].copy_from_slice(bytes);
        Some(cookie)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // One that was read from a file may claim any length.
        &self.bytes[..usize::from(self.len).min(Cookie::MOST)]
    }

    /// It asks for a cookie.
    pub fn is_request(&self) -> bool {
        self.len == 0
    }
}
