//! The queue pair of a datagram socket, with its completion queue and channel, and the buffers of what is sent and
//! received: slots of one datagram each.
use super::header::HEADER_LEN;
use super::peers::PeerPath;
use crate::abi::{IbvPd, IbvQp, IbvQpCap, IbvQpInitAttr, IbvRecvWr, IbvSendWr, IbvSge, WrBind, WrTarget, WrUd};
use crate::cm::Service;
use crate::errno::Result;
use crate::post::{post_recv, post_send};
use crate::qp_calls::{ibv_create_qp, ibv_destroy_qp, modify};
use crate::rsockets::completions::{Completions, made, posted};
use crate::rsockets::registered::{Access, Buffer};
use crate::rsockets::settings::Sizes;
use libc::iovec;
use std::net::Ipv4Addr;
use std::ptr::null_mut;
use verbs::connections::DATAGRAM_KEY;
use verbs::{QpAttributes, QpKind, QpNumber, QpState, SendFlags, SendOpcode};

/// Bytes of a datagram with its header, as Linux' rsockets have them.
pub(super) const SLOT: usize = 2048;
/// What stands before a received datagram, and where its IPv4 header has the sender's address (IBTA Annex A17.4.5.2).
const ROUTE: usize = 40;
const SENDER_AT: usize = 20 + 12;
/// From one slot of received datagrams to the next: they begin with a cache line.
const STRIDE: usize = (ROUTE + SLOT).next_multiple_of(64);
/// A receive work request, as its completion names it beside its slot.
const RECEIVE: u64 = 1 << 63;

/// A completion.
#[derive(Debug, Clone, Copy)]
pub(super) enum Done {
    /// A datagram is in this slot.
    Received(Arrival),
    /// The daemon or the queue pair is gone.
    Failed,
}

/// A datagram between queue pairs that came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    slot: usize,
    /// Bytes, with its header.
    pub(super) len: usize,
}

/// The queue pair.
pub(super) struct Queue {
    qp: *mut IbvQp,
    pub(super) completions: Completions,
    sent: Buffer,
    received: Buffer,
    /// Slots that nothing is sent from.
    free: Vec<usize>,
    slots: usize,
    inline: u32,
}

impl Queue {
    /// A queue pair that sends and receives.
    ///
    /// # Safety
    /// The domain is this process's, and stays as long as this.
    pub(super) unsafe fn new(service: &Service, domain: *mut IbvPd, sizes: &Sizes) -> Result<Queue> {
        let slots = usize::from(sizes.send_queue).min(sizes.send / SLOT).max(1);
        let receives = usize::from(sizes.receive_queue).min(sizes.receive / SLOT).max(1);
        // SAFETY: as the caller guarantees; the service's context stays open. What is made is given back by `drop`,
        // also where this fails.
        unsafe {
            let mut queue = Queue {
                qp: null_mut(),
                completions: Completions::new(service, (slots + receives) as u32)?,
                sent: Buffer::new(domain, slots * SLOT, Access::Own)?,
                received: Buffer::new(domain, receives * STRIDE, Access::Arrivals)?,
                free: (0..slots).collect(),
                slots,
                inline: sizes.inline,
            };
            let cap = IbvQpCap {
                max_send_wr: slots as u32,
                max_recv_wr: receives as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: sizes.inline,
            };
            let (cq, qp_type) = (queue.completions.cq, QpKind::Ud.code().into());
            let (qp_context, srq) = (null_mut(), null_mut());
            let mut asked = IbvQpInitAttr { qp_context, send_cq: cq, recv_cq: cq, srq, cap, qp_type, sq_sig_all: 0 };
            queue.qp = made(ibv_create_qp(domain, &raw mut asked))?;
            states().into_iter().try_for_each(|attributes| modify(queue.qp, attributes))?;
            (0..receives).try_for_each(|slot| queue.post_receive(slot))?;
            Ok(queue)
        }
    }

    /// Its number.
    pub(super) fn number(&self) -> QpNumber {
        // SAFETY: the queue pair is there as long as this.
        unsafe { (*self.qp).qp_num }
    }

    /// A datagram can be sent.
    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    /// Nothing is being sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.free.len() == self.slots
    }

    /// Sends a datagram of so many bytes at most as a slot has; false where there is no room now.
    ///
    /// # Safety
    /// The entries name bytes of the program.
    pub(super) unsafe fn send(&mut self, way: PeerPath, header: [u8; HEADER_LEN], list: &[iovec]) -> Result<bool> {
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let begin = slot * SLOT;
        self.sent.write(begin, &header);
        let mut at = begin + HEADER_LEN;
        for entry in list.iter().filter(|entry| entry.iov_len > 0) {
            // SAFETY: as the caller guarantees.
            self.sent.write(at, unsafe { std::slice::from_raw_parts(entry.iov_base.cast(), entry.iov_len) });
            at += entry.iov_len;
        }
        let posted = self.post_send(slot, at - begin, way);
        if posted.is_err() {
            self.free.push(slot);
        }
        match posted {
            Ok(()) => Ok(true),
            // Other sockets of the process fill the pipe that they share.
            Err(libc::ENOMEM) => Ok(false),
            Err(number) => Err(number),
        }
    }

    fn post_send(&self, slot: usize, len: usize, way: PeerPath) -> Result<()> {
        let mut entry = IbvSge { addr: self.sent.address(slot * SLOT), length: len as u32, lkey: self.sent.key() };
        let is_inline = entry.length <= self.inline;
        let flags = SendFlags::SIGNALED.0 | if is_inline { SendFlags::INLINE.0 } else { 0 };
        let target = WrUd { ah: way.handle, remote_qpn: way.qp, remote_qkey: DATAGRAM_KEY };
        let mut request = IbvSendWr {
            wr_id: slot as u64,
            next: null_mut(),
            sg_list: &raw mut entry,
            num_sge: 1,
            opcode: SendOpcode::Send.code().into(),
            send_flags: flags.into(),
            imm_data: 0,
            wr: WrTarget { ud: target },
            remote_srqn: 0,
            bind_mw: WrBind::NONE,
        };
        // SAFETY: queue pair and handle are there; the entry names registered memory.
        posted(unsafe { post_send(self.qp, &raw mut request, null_mut()) })
    }

    fn post_receive(&self, slot: usize) -> Result<()> {
        let address = self.received.address(slot * STRIDE);
        let mut entry = IbvSge { addr: address, length: (ROUTE + SLOT) as u32, lkey: self.received.key() };
        let mut request =
            IbvRecvWr { wr_id: RECEIVE | slot as u64, next: null_mut(), sg_list: &raw mut entry, num_sge: 1 };
        // SAFETY: the queue pair is there; the entry names registered memory.
        posted(unsafe { post_recv(self.qp, &raw mut request, null_mut()) })
    }

    /// The bytes of a datagram from `at` on, as many as there is room for.
    pub(super) fn read(&self, arrival: Arrival, at: usize, into: &mut [u8]) {
        self.received.read(arrival.slot * STRIDE + ROUTE + at, into);
    }

    /// The address of the host that sent a datagram.
    pub(super) fn sender(&self, arrival: Arrival) -> Ipv4Addr {
        let mut address = [0; 4];
        self.received.read(arrival.slot * STRIDE + SENDER_AT, &mut address);
        address.into()
    }

    /// A datagram was read: its slot is there for another one.
    pub(super) fn free(&self, arrival: Arrival) -> Result<()> {
        self.post_receive(arrival.slot)
    }

    /// Takes completions; what is not only a free slot is reported.
    pub(super) fn poll(&mut self) -> Vec<Done> {
        let Queue { completions, free, .. } = self;
        let mut all = Vec::new();
        let is_there = completions.poll(|completion| {
            let slot = (completion.wr_id & !RECEIVE) as usize;
            match (completion.status, completion.wr_id & RECEIVE) {
                (0, RECEIVE) => {
                    let len = (completion.byte_len as usize).saturating_sub(ROUTE);
                    all.push(Done::Received(Arrival { slot, len }));
                }
                (0, _) => free.push(slot),
                _ => all.push(Done::Failed),
            }
        });
        if !is_there {
            all.push(Done::Failed);
        }
        all
    }
}

/// The steps of a queue pair of datagrams until it sends.
fn states() -> [QpAttributes; 3] {
    let to = |state| QpAttributes { state: Some(state), ..QpAttributes::default() };
    let (partition_index, port, queue_key) = (Some(0), Some(1), Some(DATAGRAM_KEY));
    [
        QpAttributes { partition_index, port, queue_key, ..to(QpState::Init) },
        to(QpState::ReadyToReceive),
        QpAttributes { send_psn: Some(0), ..to(QpState::ReadyToSend) },
    ]
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.qp.is_null() {
            // SAFETY: made by `new`, and used no more.
            unsafe { ibv_destroy_qp(self.qp) };
        }
    }
}
