//! The cookie of the Fast Open option (RFC 7413 section 4.1.1).

/// A Fast Open cookie: 4 to 16 bytes, an even number of them; or none, which asks for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Cookie {
    len: u8,
    bytes: [u8; Cookie::MOST],
    /// It is in the option from before RFC 7413.
    #[serde(default)]
    experimental: bool,
}

/// The kind of experimental options (RFC 4727), and what begins those of Fast Open (RFC 6994, RFC 7413 section 4.1.1).
const EXPERIMENT: u8 = 254;
const MAGIC: [u8; 2] = [0xf9, 0x89];

impl Cookie {
    /// Kind of the option.
    pub const OPTION: u8 = 34;
    /// Bytes of the longest one.
    pub const MOST: usize = 16;
    /// Asks for a cookie.
    pub const REQUEST: Cookie = Cookie { len: 0, bytes: [0; Cookie::MOST], experimental: false };
    /// The same in the option from before RFC 7413.
    pub const EXPERIMENTAL_REQUEST: Cookie = Cookie { experimental: true, ..Cookie::REQUEST };

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

    /// The cookie of an option of this kind; `None` for an option of another one, or of a length that is not allowed.
    // Meets RFC 7413: 4.1.1-a.
    pub(super) fn parse(kind: u8, body: &[u8]) -> Option<Cookie> {
        match (kind, body.strip_prefix(&MAGIC)) {
            (Cookie::OPTION, _) => Cookie::new(body),
            (EXPERIMENT, Some(cookie)) => Some(Cookie { experimental: true, ..Cookie::new(cookie)? }),
            _ => None,
        }
    }

    /// This cookie, in the option that the peer has used.
    pub fn as_in(self, other: Cookie) -> Cookie {
        Cookie { experimental: other.experimental, ..self }
    }

    /// It has the same bytes, in whichever option.
    pub fn is(&self, other: &Cookie) -> bool {
        self.bytes() == other.bytes()
    }

    /// Bytes of the option, padded to words.
    pub(super) fn option_len(&self) -> usize {
        let head = if self.experimental { 2 + MAGIC.len() } else { 2 };
        (head + self.bytes().len()).next_multiple_of(4)
    }

    /// Writes the option, padded to words.
    pub(super) fn emit(&self, mut put: impl FnMut(&[u8])) {
        let (bytes, len) = (self.bytes(), self.bytes().len());
        // Cookies have an even length: the padding is nothing or two bytes.
        let is_padded = if self.experimental {
            put(&[EXPERIMENT, (2 + MAGIC.len() + len) as u8]);
            put(&MAGIC);
            len % 4 != 0
        } else {
            put(&[Cookie::OPTION, (2 + len) as u8]);
            len % 4 == 0
        };
        put(bytes);
        if is_padded {
            put(&[1, 1]);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experimental_option_is_read_and_written() {
        let written = |cookie: Cookie| {
            let mut area = Vec::new();
            cookie.emit(|bytes| area.extend(bytes));
            assert_eq!(area.len(), cookie.option_len());
            area
        };
        assert_eq!(written(Cookie::EXPERIMENTAL_REQUEST), [254, 4, 0xf9, 0x89]);
        for len in (4..=16).step_by(2) {
            let cookie = Cookie::new(&vec![7; len]).unwrap().as_in(Cookie::EXPERIMENTAL_REQUEST);
            let area = written(cookie);
            assert_eq!(area.len() % 4, 0);
            assert_eq!(Cookie::parse(area[0], &area[2..area[1].into()]), Some(cookie));
            assert!(cookie.is(&Cookie::new(&vec![7; len]).unwrap()));
        }
        // Another experiment, and a cookie of a length that is not allowed.
        assert_eq!(Cookie::parse(254, &[0xf9, 0x88, 1, 2, 3, 4]), None);
        assert_eq!(Cookie::parse(254, &[0xf9, 0x89, 1, 2]), None);
    }
}
