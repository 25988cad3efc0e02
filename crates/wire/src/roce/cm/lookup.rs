//! SIDR_REQ and SIDR_REP: services of datagrams (IBTA 1.3, 12.11).
use super::attribute;
use super::bits::{be64, copy, put16, put32, put64};
use super::parts::{BODY_LEN, Body, PrivateData, rest};
use crate::{Malformed, be16, be32};

const LOOKUP_DATA: usize = 16;
const REPLY_DATA: usize = 96;

/// SIDR_REQ: asks for the queue pair of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The sender's number for it.
    pub request: u32,
    /// The partition.
    pub pkey: u16,
    /// The service.
    pub service: u64,
    /// Private data: 216 bytes.
    pub data: PrivateData,
}

impl Lookup {
    /// Bytes of private data.
    pub const DATA: usize = BODY_LEN - LOOKUP_DATA;

    pub(super) fn parse(body: &Body) -> Result<Lookup, Malformed> {
        Ok(Lookup {
            request: be32(body, 0),
            pkey: be16(body, 4),
            service: be64(body, 8),
            data: rest(body, LOOKUP_DATA),
        })
    }

    pub(super) fn emit(&self, body: &mut Body) -> u16 {
        put32(body, 0, self.request);
        put16(body, 4, self.pkey);
        put64(body, 8, self.service);
        copy(&mut body[LOOKUP_DATA..], &self.data.0);
        attribute::SIDR_REQ
    }
}

/// How a lookup ended (IBTA 1.3, table 333).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupStatus(pub u8);

impl LookupStatus {
    /// The queue pair is in the answer.
    pub const VALID: LookupStatus = LookupStatus(0);
    /// Nobody has the service.
    pub const NO_SERVICE: LookupStatus = LookupStatus(1);
    /// The program refuses.
    pub const REJECTED: LookupStatus = LookupStatus(2);
    /// There is no queue pair.
    pub const NO_QP: LookupStatus = LookupStatus(3);
}

/// SIDR_REP: the queue pair of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupReply {
    /// The number that the lookup had.
    pub request: u32,
    /// How it ended.
    pub status: LookupStatus,
    /// The queue pair.
    pub qp: u32,
    /// The service.
    pub service: u64,
    /// The queue key.
    pub key: u32,
    /// Private data: 136 bytes.
    pub data: PrivateData,
}

impl LookupReply {
    /// Bytes of private data.
    pub const DATA: usize = BODY_LEN - REPLY_DATA;

    pub(super) fn parse(body: &Body) -> Result<LookupReply, Malformed> {
        Ok(LookupReply {
            request: be32(body, 0),
            status: LookupStatus(body[4]),
            qp: be32(body, 8) >> 8,
            service: be64(body, 12),
            key: be32(body, 20),
            data: rest(body, REPLY_DATA),
        })
    }

    pub(super) fn emit(&self, body: &mut Body) -> u16 {
        put32(body, 0, self.request);
        body[4] = self.status.0;
        put32(body, 8, self.qp << 8);
        put64(body, 12, self.service);
        put32(body, 20, self.key);
        copy(&mut body[REPLY_DATA..], &self.data.0);
        attribute::SIDR_REP
    }
}
