//! MRA and REJ (IBTA 1.3, 12.6.6 and 12.6.7).
use super::attribute;
use super::bits::{copy, put16};
use super::parts::{BODY_LEN, Body, Pair, PrivateData, pair, put_pair, rest};
use crate::{Malformed, be16};

const WAIT_DATA: usize = 10;
const DETAIL: usize = 12;
const REJECT_DATA: usize = 84;

/// Which message another one is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum About {
    /// REQ.
    Request = 0,
    /// REP.
    Reply = 1,
    /// Another one; a REJ without a message means that a time-out passed.
    Other = 2,
}

impl About {
    fn parse(byte: u8) -> Result<About, Malformed> {
        match byte >> 6 {
            0 => Ok(About::Request),
            1 => Ok(About::Reply),
            2 => Ok(About::Other),
            _ => Err(Malformed::Field),
        }
    }
}

/// MRA: the answer takes longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Numbers of the connection.
    pub pair: Pair,
    /// To what.
    pub about: About,
    /// How long from now on: 4.096 us * 2^n, 5 bits.
    pub timeout: u8,
    /// Private data: 222 bytes.
    pub data: PrivateData,
}

impl Wait {
    pub(super) fn parse(body: &Body) -> Result<Wait, Malformed> {
        let about = About::parse(body[8])?;
        Ok(Wait { pair: pair(body), about, timeout: body[9] >> 3, data: rest(body, WAIT_DATA) })
    }

    pub(super) fn emit(&self, body: &mut Body) -> u16 {
        put_pair(body, self.pair);
        (body[8], body[9]) = ((self.about as u8) << 6, self.timeout << 3);
        copy(&mut body[WAIT_DATA..], &self.data.0);
        attribute::MRA
    }
}

/// Why there will be no connection (IBTA 1.3, 12.6.7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(pub u16);

impl Reason {
    /// There are as many as may be.
    pub const NO_RESOURCES: Reason = Reason(3);
    /// An answer did not come in time.
    pub const TIMEOUT: Reason = Reason(4);
    /// The request asks for what is not offered.
    pub const UNSUPPORTED: Reason = Reason(5);
    /// A number of a connection that there is not.
    pub const INVALID_COMM_ID: Reason = Reason(6);
    /// Nobody listens.
    pub const INVALID_SERVICE: Reason = Reason(8);
    /// The listener is of another transport.
    pub const INVALID_TRANSPORT: Reason = Reason(9);
    /// The number is that of an older connection.
    pub const STALE: Reason = Reason(10);
    /// The packets would be larger than those that the receiver's port carries; the detail is what it does carry.
    pub const INVALID_MTU: Reason = Reason(26);
    /// The program refuses.
    pub const CONSUMER: Reason = Reason(28);
}

/// REJ: there will be no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Numbers of the connection; the sender's is 0 where it made none.
    pub pair: Pair,
    /// What is rejected.
    pub about: About,
    /// Why.
    pub reason: Reason,
    /// Additional information of the reason, at most 72 bytes.
    pub detail: Vec<u8>,
    /// Private data: 148 bytes.
    pub data: PrivateData,
}

impl Reject {
    /// Bytes of private data.
    pub const DATA: usize = BODY_LEN - REJECT_DATA;

    pub(super) fn parse(body: &Body) -> Result<Reject, Malformed> {
        let (len, most) = (usize::from(body[9] >> 1), REJECT_DATA - DETAIL);
        Ok(Reject {
            pair: pair(body),
            about: About::parse(body[8])?,
            reason: Reason(be16(body, 10)),
            detail: body[DETAIL..DETAIL + len.min(most)].to_vec(),
            data: rest(body, REJECT_DATA),
        })
    }

    pub(super) fn emit(&self, body: &mut Body) -> u16 {
        put_pair(body, self.pair);
        let detail = &self.detail[..self.detail.len().min(REJECT_DATA - DETAIL)];
        (body[8], body[9]) = ((self.about as u8) << 6, (detail.len() as u8) << 1);
        put16(body, 10, self.reason.0);
        copy(&mut body[DETAIL..], detail);
        copy(&mut body[REJECT_DATA..], &self.data.0);
        attribute::REJ
    }
}
