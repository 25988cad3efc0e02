//! Attributes of queue pairs: from the program's structure with its mask to the contract's, and back.
use crate::abi::{IbvQpAttr, IbvQpCap};
use crate::errno::Result;
use crate::handle;
use libc::c_int;
use memory::Rights;
use verbs::{Capacities, Mtu, QpAttributes, QpState};

/// `enum ibv_qp_attr_mask`.
const STATE: c_int = 1;
const CURRENT_STATE: c_int = 1 << 1;
const DRAINED_NOTICE: c_int = 1 << 2;
const ACCESS_FLAGS: c_int = 1 << 3;
const PARTITION_INDEX: c_int = 1 << 4;
const PORT: c_int = 1 << 5;
const QUEUE_KEY: c_int = 1 << 6;
const PATH: c_int = 1 << 7;
const PATH_MTU: c_int = 1 << 8;
const TIMEOUT: c_int = 1 << 9;
const RETRIES: c_int = 1 << 10;
const RNR_RETRIES: c_int = 1 << 11;
const RECEIVE_PSN: c_int = 1 << 12;
const INITIATOR_DEPTH: c_int = 1 << 13;
const RNR_TIMER: c_int = 1 << 15;
const SEND_PSN: c_int = 1 << 16;
const RESPONDER_RESOURCES: c_int = 1 << 17;
const REMOTE_QP: c_int = 1 << 20;
const KNOWN: c_int = STATE
    | CURRENT_STATE
    | DRAINED_NOTICE
    | ACCESS_FLAGS
    | PARTITION_INDEX
    | PORT
    | QUEUE_KEY
    | PATH
    | PATH_MTU
    | TIMEOUT
    | RETRIES
    | RNR_RETRIES
    | RECEIVE_PSN
    | INITIATOR_DEPTH
    | RNR_TIMER
    | SEND_PSN
    | RESPONDER_RESOURCES
    | REMOTE_QP;

/// `IBV_MIG_MIGRATED`: there is one path.
const MIGRATED: c_int = 0;

/// What the program asks for. EOPNOTSUPP for alternate paths, new capacities and rates; EINVAL for what has no meaning.
pub(crate) fn asked(from: &IbvQpAttr, mask: c_int) -> Result<QpAttributes> {
    if mask & !KNOWN != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let is = |bit: c_int| mask & bit != 0;
    let code = |number: c_int| u8::try_from(number).map_err(|_| libc::EINVAL);
    let state = if is(STATE) { Some(QpState::from_code(code(from.qp_state)?).ok_or(libc::EINVAL)?) } else { None };
    let mtu = if is(PATH_MTU) { Some(Mtu::from_code(code(from.path_mtu)?).ok_or(libc::EINVAL)?) } else { None };
    let path = if is(PATH) { Some(handle::path(&from.ah_attr)?) } else { None };
    let rights = if is(ACCESS_FLAGS) { Some(rights(from.qp_access_flags)?) } else { None };
    Ok(QpAttributes {
        state,
        rights,
        partition_index: is(PARTITION_INDEX).then_some(from.pkey_index),
        port: is(PORT).then_some(from.port_num),
        queue_key: is(QUEUE_KEY).then_some(from.qkey),
        path,
        mtu,
        timeout: is(TIMEOUT).then_some(from.timeout),
        retries: is(RETRIES).then_some(from.retry_cnt),
        rnr_retries: is(RNR_RETRIES).then_some(from.rnr_retry),
        rnr_timer: is(RNR_TIMER).then_some(from.min_rnr_timer),
        receive_psn: is(RECEIVE_PSN).then_some(from.rq_psn),
        send_psn: is(SEND_PSN).then_some(from.sq_psn),
        responder_resources: is(RESPONDER_RESOURCES).then_some(from.max_dest_rd_atomic),
        initiator_depth: is(INITIATOR_DEPTH).then_some(from.max_rd_atomic),
        remote_qp: is(REMOTE_QP).then_some(from.dest_qp_num),
    })
}

/// Rights of a queue pair; those that only regions have are passed over, as by network cards.
fn rights(flags: libc::c_uint) -> Result<Rights> {
    Rights::from_bits(flags & Rights::ALL.bits()).ok_or(libc::EINVAL)
}

/// What a queue pair has, in the program's structure. What was never set is 0.
pub(crate) fn found(from: &QpAttributes, cap: IbvQpCap) -> IbvQpAttr {
    let state = from.state.map_or(0, |state| c_int::from(state.code()));
    let port = from.port.unwrap_or_default();
    IbvQpAttr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: from.mtu.map_or(0, |mtu| c_int::from(mtu.code())),
        path_mig_state: MIGRATED,
        qkey: from.queue_key.unwrap_or_default(),
        rq_psn: from.receive_psn.unwrap_or_default(),
        sq_psn: from.send_psn.unwrap_or_default(),
        dest_qp_num: from.remote_qp.unwrap_or_default(),
        qp_access_flags: from.rights.map_or(0, Rights::bits),
        cap,
        ah_attr: handle::attributes(&from.path.unwrap_or_default(), port),
        alt_ah_attr: handle::attributes(&Default::default(), 0),
        pkey_index: from.partition_index.unwrap_or_default(),
        alt_pkey_index: 0,
        en_sqd_async_notify: 0,
        sq_draining: 0,
        max_rd_atomic: from.initiator_depth.unwrap_or_default(),
        max_dest_rd_atomic: from.responder_resources.unwrap_or_default(),
        min_rnr_timer: from.rnr_timer.unwrap_or_default(),
        port_num: port,
        timeout: from.timeout.unwrap_or_default(),
        retry_cnt: from.retries.unwrap_or_default(),
        rnr_retry: from.rnr_retries.unwrap_or_default(),
        alt_port_num: 0,
        alt_timeout: 0,
        rate_limit: 0,
    }
}

/// The mask of the attributes that are set.
pub(crate) fn mask(from: &QpAttributes) -> c_int {
    let all = [
        (from.state.is_some(), STATE),
        (from.rights.is_some(), ACCESS_FLAGS),
        (from.partition_index.is_some(), PARTITION_INDEX),
        (from.port.is_some(), PORT),
        (from.queue_key.is_some(), QUEUE_KEY),
        (from.path.is_some(), PATH),
        (from.mtu.is_some(), PATH_MTU),
        (from.timeout.is_some(), TIMEOUT),
        (from.retries.is_some(), RETRIES),
        (from.rnr_retries.is_some(), RNR_RETRIES),
        (from.rnr_timer.is_some(), RNR_TIMER),
        (from.receive_psn.is_some(), RECEIVE_PSN),
        (from.send_psn.is_some(), SEND_PSN),
        (from.responder_resources.is_some(), RESPONDER_RESOURCES),
        (from.initiator_depth.is_some(), INITIATOR_DEPTH),
        (from.remote_qp.is_some(), REMOTE_QP),
    ];
    all.iter().filter(|(is_set, _)| *is_set).fold(0, |mask, (_, bit)| mask | bit)
}

/// Capacities that a program asks for.
pub(crate) fn capacities(cap: &IbvQpCap) -> Capacities {
    Capacities {
        send: cap.max_send_wr,
        receive: cap.max_recv_wr,
        send_pieces: cap.max_send_sge,
        receive_pieces: cap.max_recv_sge,
        inline: cap.max_inline_data,
    }
}

/// And those that it got.
pub(crate) fn cap(capacities: &Capacities) -> IbvQpCap {
    IbvQpCap {
        max_send_wr: capacities.send,
        max_recv_wr: capacities.receive,
        max_send_sge: capacities.send_pieces,
        max_recv_sge: capacities.receive_pieces,
        max_inline_data: capacities.inline,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{AddressVector, Gid};

    #[test]
    fn attributes_come_back_and_the_mask_selects() {
        let path = AddressVector { gid: Gid([7; 16]), gid_index: 1, flow_label: 9, ..AddressVector::default() };
        let all = QpAttributes {
            state: Some(QpState::ReadyToSend),
            rights: Some(Rights::REMOTE_READ),
            partition_index: Some(0),
            port: Some(1),
            queue_key: Some(0x1111_1111),
            path: Some(path),
            mtu: Some(Mtu::B1024),
            timeout: Some(14),
            retries: Some(7),
            rnr_retries: Some(6),
            rnr_timer: Some(12),
            receive_psn: Some(1),
            send_psn: Some(2),
            responder_resources: Some(3),
            initiator_depth: Some(4),
            remote_qp: Some(5),
        };
        let nothing = cap(&Capacities::default());
        let there = found(&all, nothing);
        assert_eq!(asked(&there, KNOWN), Ok(all));
        assert_eq!(mask(&all), KNOWN & !(CURRENT_STATE | DRAINED_NOTICE));
        let some = QpAttributes { state: all.state, send_psn: all.send_psn, ..QpAttributes::default() };
        assert_eq!(asked(&there, STATE | SEND_PSN), Ok(some));
        assert_eq!(asked(&there, 1 << 14), Err(libc::EOPNOTSUPP), "an alternate path");
        let unknown = IbvQpAttr { qp_state: 77, ..there };
        assert_eq!(asked(&unknown, STATE), Err(libc::EINVAL));
    }
}
