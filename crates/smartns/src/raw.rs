//! Raw packets: work requests hold whole Ethernet frames, without checksum and preamble (`IBV_QPT_RAW_PACKET`).
use crate::completion_queue::Solicited;
use crate::config::RawPackets;
use crate::datagram::{append, placed};
use crate::ending::{Received, complete_receive, end_front};
use crate::qp::Qp;
use crate::requester::SendProgress;
use crate::send_queue::Work;
use crate::shared::Round;
use engine::DropReason;
use verbs::{CompletionFlags, CompletionOpcode, Status};
use wire::ethernet;

/// Sends up to `budget` frames; each has ended when it is sent.
pub(crate) fn send(qp: &mut Qp, round: &mut Round<'_, '_>, budget: &mut u32) -> SendProgress {
    while qp.sends() {
        if *budget == 0 {
            return SendProgress::Again;
        }
        let Some(work) = qp.queue.front() else { return SendProgress::Wait };
        *budget -= 1;
        let status = send_one(qp, work, round);
        if !end_front(qp, status, round) {
            return SendProgress::Wait;
        }
    }
    SendProgress::Wait
}

fn send_one(qp: &Qp, work: &Work, round: &mut Round<'_, '_>) -> Status {
    if let Some(fault) = work.fault {
        return fault;
    }
    let Some(RawPackets { source, most_bytes }) = round.shared.config.raw else { return Status::LocalQpOperation };
    if !(ethernet::HEADER_LEN as u32..=most_bytes).contains(&work.len) {
        return Status::LocalLength;
    }
    let mut frame = round.frame(work.len as usize);
    let bytes = frame.bytes_vec();
    let status = match append(qp, work, round, bytes) {
        Err(_) => Status::LocalProtection,
        // A frame with another source would move that station's place in the network to here.
        Ok(()) if ethernet::Header::parse(bytes).is_ok_and(|header| header.src == source) => Status::Success,
        Ok(()) => Status::LocalQpOperation,
    };
    if status == Status::Success {
        round.out.tx.push(frame);
    } else {
        round.out.pool.put(frame);
    }
    status
}

/// A frame came that a rule of the program's is for.
pub(crate) fn receive(qp: &mut Qp, bytes: &[u8], round: &mut Round<'_, '_>) {
    if !qp.receives() {
        return round.drop(DropReason::QpState);
    }
    if !placed(qp, bytes.len() as u32, &[(0, bytes)], round) {
        return;
    }
    let received = Received {
        opcode: CompletionOpcode::Receive,
        bytes: bytes.len() as u32,
        immediate: 0,
        flags: CompletionFlags::default(),
        remote_qp: 0,
        service_level: 0,
        solicited: Solicited::No,
    };
    complete_receive(qp, &received, round);
}
