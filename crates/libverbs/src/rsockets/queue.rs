//! The queue pair of a stream, with one completion queue and its channel: work requests posted, completions taken.
use super::completions::{Completions, posted};
use super::protocol::{Message, RemoteBuffer};
use crate::abi::{IbvQp, IbvQpCap, IbvQpInitAttr, IbvRecvWr, IbvSendWr, IbvSge};
use crate::abi::{RdmaCmId, WrBind, WrRdma, WrTarget};
use crate::cm::{Service, create_queue_pair, rdma_destroy_qp};
use crate::errno::Result;
use crate::post::{post_recv, post_send};
use libc::c_int;
use std::ptr::null_mut;
use verbs::{SendFlags, SendOpcode};

/// A receive work request, as its completion names it. Sends are named by the bytes of the send buffer that they free.
const RECEIVE: u64 = 1 << 63;
/// Beside them: a control message.
const CONTROL: u64 = 1 << 62;

/// A completion.
#[derive(Debug, Clone, Copy)]
pub(super) enum Done {
    /// The peer's message.
    Received(Message),
    /// A control message went out.
    Control,
    /// So many bytes of the send buffer are free.
    Sent(u32),
    /// The connection is broken.
    Failed,
}

/// The queue pair.
pub(super) struct Queue {
    id: *mut RdmaCmId,
    qp: *mut IbvQp,
    pub(super) completions: Completions,
}

/// How long its queues are.
#[derive(Clone, Copy)]
pub(super) struct Depth {
    /// Send work requests.
    pub(super) send: u32,
    /// Receive work requests.
    pub(super) receive: u32,
    /// Bytes that a work request can bring along.
    pub(super) inline: u32,
}

/// A WRITE that is to be posted.
pub(super) struct Write {
    /// From here, with this local key.
    pub(super) from: RemoteBuffer,
    /// To this address, with this remote key.
    pub(super) to: RemoteBuffer,
    /// With this message; silently without.
    pub(super) message: Option<Message>,
    /// It is a control message, which frees nothing of the send buffer.
    pub(super) is_control: bool,
}

impl Queue {
    /// A queue pair for an identifier that has a device.
    ///
    /// # Safety
    /// The identifier is not destroyed before the queue.
    pub(super) unsafe fn new(service: &Service, id: *mut RdmaCmId, depth: Depth) -> Result<Queue> {
        // SAFETY: the service's context stays open. What is made is given back by `drop`, also where this fails.
        unsafe {
            let completions = Completions::new(service, depth.send + depth.receive)?;
            let mut queue = Queue { id, qp: null_mut(), completions };
            let cap = IbvQpCap {
                max_send_wr: depth.send,
                max_recv_wr: depth.receive,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: depth.inline,
            };
            let mut asked = IbvQpInitAttr {
                qp_context: null_mut(),
                send_cq: queue.completions.cq,
                recv_cq: queue.completions.cq,
                srq: null_mut(),
                cap,
                qp_type: 0,
                sq_sig_all: 0,
            };
            create_queue_pair(id, null_mut(), &mut asked)?;
            queue.qp = (*id).qp;
            (0..depth.receive).try_for_each(|_| queue.post_receive())?;
            Ok(queue)
        }
    }

    /// Room for a message, which has no bytes beside it.
    pub(super) fn post_receive(&self) -> Result<()> {
        let mut request = IbvRecvWr { wr_id: RECEIVE, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        // SAFETY: the queue pair is there; a work request without entries.
        posted(unsafe { post_recv(self.qp, &raw mut request, null_mut()) })
    }

    /// Posts a WRITE. `inline` is how many bytes may go along in it.
    pub(super) fn post_write(&self, write: &Write, inline: u32) -> Result<()> {
        let Write { from, to, message, is_control } = write;
        let mut entry = IbvSge { addr: from.address, length: from.len, lkey: from.key };
        let is_inline = from.len <= inline || *is_control;
        let flags = SendFlags::SIGNALED.0 | if is_inline { SendFlags::INLINE.0 } else { 0 };
        let opcode = if message.is_some() { SendOpcode::WriteImmediate } else { SendOpcode::Write };
        let mut request = IbvSendWr {
            wr_id: if *is_control { CONTROL } else { from.len.into() },
            next: null_mut(),
            sg_list: &raw mut entry,
            num_sge: c_int::from(from.len > 0),
            opcode: opcode.code().into(),
            send_flags: flags.into(),
            imm_data: message.map_or(0, Message::encode).to_be(),
            wr: WrTarget { rdma: WrRdma { remote_addr: to.address, rkey: to.key } },
            remote_srqn: 0,
            bind_mw: WrBind::NONE,
        };
        // SAFETY: the queue pair is there; the entry names memory of the caller's, which is registered or inline.
        posted(unsafe { post_send(self.qp, &raw mut request, null_mut()) })
    }

    /// Takes completions, and shows each.
    pub(super) fn poll(&self, mut each: impl FnMut(Done)) {
        let is_there = self.completions.poll(|completion| {
            each(match (completion.status, completion.wr_id) {
                (0, RECEIVE) => Done::Received(Message::decode(u32::from_be(completion.imm_data))),
                (0, CONTROL) => Done::Control,
                (0, bytes) => Done::Sent(bytes as u32),
                _ => Done::Failed,
            });
        });
        if !is_there {
            each(Done::Failed);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.qp.is_null() {
            // SAFETY: made by `new`, and used no more; the identifier is there still.
            unsafe { rdma_destroy_qp(self.id) };
        }
    }
}
