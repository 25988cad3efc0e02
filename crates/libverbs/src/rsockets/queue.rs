//! The queue pair of a stream, with one completion queue and its channel: work requests posted, completions taken.
use super::protocol::{Message, Place};
use crate::abi::{IbvCompChannel, IbvCq, IbvQp, IbvQpCap, IbvQpInitAttr, IbvRecvWr, IbvSendWr, IbvSge, IbvWc};
use crate::abi::{RdmaCmId, WrBind, WrRdma, WrTarget};
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, read_message};
use crate::cm::{Service, create_queue_pair, rdma_destroy_qp};
use crate::completion_queue::Cq;
use crate::cq_calls::{ibv_create_cq, ibv_destroy_cq, req_notify_cq};
use crate::errno::{self, Result};
use crate::poll::poll_cq;
use crate::post::{post_recv, post_send};
use libc::c_int;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use verbs::{ChannelMessage, SendFlags, SendOpcode};

/// Completions that are taken at once.
const BATCH: usize = 16;
/// A receive work request, as its completion names it. Sends are named by the bytes of the send buffer that they free.
const RECEIVE: u64 = 1 << 63;
/// Beside them: a control message.
const CONTROL: u64 = 1 << 62;

/// What a completion says.
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
    cq: *mut IbvCq,
    channel: *mut IbvCompChannel,
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
    pub(super) from: Place,
    /// To this address, with this remote key.
    pub(super) to: Place,
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
            let channel = ibv_create_comp_channel(service.context);
            let mut queue = Queue { id, qp: null_mut(), cq: null_mut(), channel };
            if channel.is_null() {
                return Err(errno::get());
            }
            let fd = (*channel).fd;
            if libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) != 0 {
                return Err(errno::get());
            }
            let entries = (depth.send + depth.receive) as c_int;
            queue.cq = ibv_create_cq(service.context, entries, null_mut(), channel, 0);
            if queue.cq.is_null() {
                return Err(errno::get());
            }
            let cap = IbvQpCap {
                max_send_wr: depth.send,
                max_recv_wr: depth.receive,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: depth.inline,
            };
            let mut asked = IbvQpInitAttr {
                qp_context: null_mut(),
                send_cq: queue.cq,
                recv_cq: queue.cq,
                srq: null_mut(),
                cap,
                qp_type: 0,
                sq_sig_all: 0,
            };
            create_queue_pair(service, id, null_mut(), &mut asked)?;
            queue.qp = (*id).qp;
            (0..depth.receive).try_for_each(|_| queue.post_receive())?;
            Ok(queue)
        }
    }

    /// The descriptor that is readable once something has completed after [`Queue::arm`].
    pub(super) fn fd(&self) -> RawFd {
        // SAFETY: the channel is there as long as this.
        unsafe { (*self.channel).fd }
    }

    /// Room for a message, which has no bytes beside it.
    pub(super) fn post_receive(&self) -> Result<()> {
        let mut request = IbvRecvWr { wr_id: RECEIVE, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        // SAFETY: the queue pair is there; a work request without entries.
        match unsafe { post_recv(self.qp, &raw mut request, null_mut()) } {
            0 => Ok(()),
            number => Err(number),
        }
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
        match unsafe { post_send(self.qp, &raw mut request, null_mut()) } {
            0 => Ok(()),
            number => Err(number),
        }
    }

    /// Takes completions, and shows each.
    pub(super) fn poll(&self, mut each: impl FnMut(Done)) {
        loop {
            // SAFETY: zeros are valid completions, of which as many are read as were written.
            let mut found: [IbvWc; BATCH] = unsafe { std::mem::zeroed() };
            // SAFETY: the queue is there, and has room for so many.
            let count = unsafe { poll_cq(self.cq, BATCH as c_int, found.as_mut_ptr()) };
            if count < 0 {
                return each(Done::Failed);
            }
            for completion in &found[..count as usize] {
                each(match (completion.status, completion.wr_id) {
                    (0, RECEIVE) => Done::Received(Message::decode(u32::from_be(completion.imm_data))),
                    (0, CONTROL) => Done::Control,
                    (0, bytes) => Done::Sent(bytes as u32),
                    _ => Done::Failed,
                });
            }
            if (count as usize) < BATCH {
                return;
            }
        }
    }

    /// The descriptor becomes readable with the next completion. One that is there already is not told of: poll again.
    pub(super) fn arm(&self) {
        // SAFETY: the queue is there.
        unsafe { req_notify_cq(self.cq, 0) };
    }

    /// Takes what the descriptor has.
    pub(super) fn drain(&self) {
        while read_message::<{ ChannelMessage::BYTES }>(self.fd()).is_ok() {}
    }

    /// The daemon is there.
    pub(super) fn is_alive(&self) -> bool {
        // SAFETY: the queue is there.
        unsafe { Cq::of(self.cq) }.attachment.is_alive()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: all were made by `new`, and are used no more; the identifier is there still.
        unsafe {
            if !self.qp.is_null() {
                rdma_destroy_qp(self.id);
            }
            if !self.cq.is_null() {
                ibv_destroy_cq(self.cq);
            }
            if !self.channel.is_null() {
                ibv_destroy_comp_channel(self.channel);
            }
        }
    }
}
