//! REQ and REP (IBTA 1.3, 12.6.5 and 12.6.8).
use super::attribute;
use super::bits::{be64, copy, gid, put16, put32, put64};
use super::parts::{BODY_LEN, Body, CommId, Pair, PrivateData, pair, put_pair, rest};
use crate::{Malformed, be16, be32};

/// Where the private data begin.
const REQUEST_DATA: usize = 140;
const REPLY_DATA: usize = 36;
/// A LID that leaves it to the receiver: RoCE has none (IBTA 1.3, 4.1.3).
const PERMISSIVE_LID: u16 = 0xffff;

/// What a side sends of its queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueuePair {
    /// Its number.
    pub number: u32,
    /// The sequence number of the first packet that it takes: where the peer begins to send ("Starting PSN").
    pub first_psn: u32,
    /// Reads and atomics that it takes at once.
    pub responder_resources: u8,
    /// Reads and atomics that it may have outstanding.
    pub initiator_depth: u8,
    /// How often the peer repeats after an RNR NAK of this one, at most 7, which is for ever.
    pub rnr_retries: u8,
    /// It takes receive work requests from an SRQ.
    pub srq: bool,
    /// It counts credits.
    pub flow_control: bool,
    /// The GUID of its adapter.
    pub guid: u64,
}

/// The path of a connection, as the side that asks for it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionPath {
    /// The GID of the active side.
    pub local: [u8; 16],
    /// The GID of the passive side.
    pub remote: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hops.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Time-out for an acknowledgement: 4.096 us * 2^n, 5 bits.
    pub ack_timeout: u8,
    /// A code of 6 bits for the rate.
    pub rate: u8,
}

/// REQ: asks for a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The number by which the sender calls the connection.
    pub local: CommId,
    /// What it asks for.
    pub service: u64,
    /// The sender's queue pair.
    pub qp: QueuePair,
    /// What it transports: 0 is a reliable connection, 1 an unreliable one.
    pub transport: u8,
    /// How long the receiver may take for an answer: 4.096 us * 2^n, 5 bits.
    pub remote_timeout: u8,
    /// How long the sender takes at most.
    pub local_timeout: u8,
    /// Retransmissions of a queue pair after time-outs and sequence errors, at most 7.
    pub retries: u8,
    /// How often a message of connection management is sent again, 4 bits.
    pub cm_retries: u8,
    /// The partition.
    pub pkey: u16,
    /// A code of 4 bits for the payload of a packet at most.
    pub mtu: u8,
    /// The path.
    pub way: ConnectionPath,
    /// An alternate path is named, too.
    pub has_alternate: bool,
    /// Private data: 92 bytes.
    pub data: PrivateData,
}

impl Request {
    /// Bytes of private data.
    pub const DATA: usize = BODY_LEN - REQUEST_DATA;

    pub(super) fn parse(body: &Body) -> Result<Request, Malformed> {
        let (qp, depth, remote, psn) = (be32(body, 32), be32(body, 36), be32(body, 40), be32(body, 44));
        let (mtu, tail) = (body[50], body[51]);
        let request = Request {
            local: be32(body, 0),
            service: be64(body, 8),
            qp: QueuePair {
                number: qp >> 8,
                first_psn: psn >> 8,
                responder_resources: qp as u8,
                initiator_depth: depth as u8,
                rnr_retries: mtu & 7,
                srq: tail & 8 != 0,
                flow_control: remote & 1 != 0,
                guid: be64(body, 16),
            },
            transport: (remote as u8) >> 1 & 3,
            remote_timeout: (remote as u8) >> 3,
            local_timeout: (psn as u8) >> 3,
            retries: psn as u8 & 7,
            cm_retries: tail >> 4,
            pkey: be16(body, 48),
            mtu: mtu >> 4,
            way: ConnectionPath {
                local: gid(body, 56),
                remote: gid(body, 72),
                flow_label: be32(body, 88) >> 12,
                traffic_class: body[92],
                hop_limit: body[93],
                service_level: body[94] >> 4,
                ack_timeout: body[95] >> 3,
                rate: body[91] & 0x3f,
            },
            has_alternate: body[96..98] != [0; 2] || body[100..116] != [0; 16],
            data: rest(body, REQUEST_DATA),
        };
        // Without a number nobody could answer; a transport of 3 names an extended one, which RoCE here lacks.
        if request.local == 0 || request.transport > 1 || request.mtu == 0 || request.mtu > 5 {
            return Err(Malformed::Field);
        }
        Ok(request)
    }

    pub(super) fn emit(&self, body: &mut Body) -> u16 {
        let Request { qp, way, .. } = self;
        put32(body, 0, self.local);
        put64(body, 8, self.service);
        put64(body, 16, qp.guid);
        put32(body, 32, qp.number << 8 | u32::from(qp.responder_resources));
        put32(body, 36, qp.initiator_depth.into());
        let remote = self.remote_timeout << 3 | (self.transport & 3) << 1 | u8::from(qp.flow_control);
        put32(body, 40, remote.into());
        put32(body, 44, qp.first_psn << 8 | u32::from(self.local_timeout << 3 | self.retries & 7));
        put16(body, 48, self.pkey);
        body[50] = self.mtu << 4 | qp.rnr_retries & 7;
        body[51] = self.cm_retries << 4 | u8::from(qp.srq) << 3;
        put16(body, 52, PERMISSIVE_LID);
        put16(body, 54, PERMISSIVE_LID);
        copy(&mut body[56..], &way.local);
        copy(&mut body[72..], &way.remote);
        put32(body, 88, way.flow_label << 12 | u32::from(way.rate & 0x3f));
        (body[92], body[93]) = (way.traffic_class, way.hop_limit);
        (body[94], body[95]) = (way.service_level << 4, way.ack_timeout << 3);
        copy(&mut body[REQUEST_DATA..], &self.data.0);
        attribute::REQ
    }
}

/// REP: accepts a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// Numbers of the connection.
    pub pair: Pair,
    /// The sender's queue pair.
    pub qp: QueuePair,
    /// What the sender's adapter takes for an acknowledgement: 4.096 us * 2^n, 5 bits.
    pub ack_delay: u8,
    /// Private data: 196 bytes.
    pub data: PrivateData,
}

impl Reply {
    /// Bytes of private data.
    pub const DATA: usize = BODY_LEN - REPLY_DATA;

    pub(super) fn parse(body: &Body) -> Result<Reply, Malformed> {
        let reply = Reply {
            pair: pair(body),
            qp: QueuePair {
                number: be32(body, 12) >> 8,
                first_psn: be32(body, 20) >> 8,
                responder_resources: body[24],
                initiator_depth: body[25],
                rnr_retries: body[27] >> 5,
                srq: body[27] & 0x10 != 0,
                flow_control: body[26] & 1 != 0,
                guid: be64(body, 28),
            },
            ack_delay: body[26] >> 3,
            data: rest(body, REPLY_DATA),
        };
        if reply.pair.local == 0 { Err(Malformed::Field) } else { Ok(reply) }
    }

    pub(super) fn emit(&self, body: &mut Body) -> u16 {
        let qp = &self.qp;
        put_pair(body, self.pair);
        put32(body, 12, qp.number << 8);
        put32(body, 20, qp.first_psn << 8);
        (body[24], body[25]) = (qp.responder_resources, qp.initiator_depth);
        body[26] = self.ack_delay << 3 | u8::from(qp.flow_control);
        body[27] = qp.rnr_retries << 5 | u8::from(qp.srq) << 4;
        put64(body, 28, qp.guid);
        copy(&mut body[REPLY_DATA..], &self.data.0);
        attribute::REP
    }
}
