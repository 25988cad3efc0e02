//! Transitions of queue pairs: which there are, which attributes each needs and which it allows (IBTA 1.3, 10.3.1 and
//! 11.2.5.2; the same table as Linux' `ib_modify_qp_is_ok`).
use crate::config::Limits;
use crate::objects::Refusal;
use verbs::{QpAttributes, QpKind, QpState};

/// A set of attributes, as bits.
type Set = u16;

const RIGHTS: Set = 1;
const PARTITION: Set = 1 << 1;
const PORT: Set = 1 << 2;
const QUEUE_KEY: Set = 1 << 3;
const PATH: Set = 1 << 4;
const MTU: Set = 1 << 5;
const TIMEOUT: Set = 1 << 6;
const RETRIES: Set = 1 << 7;
const RNR_RETRIES: Set = 1 << 8;
const RNR_TIMER: Set = 1 << 9;
const RECEIVE_PSN: Set = 1 << 10;
const SEND_PSN: Set = 1 << 11;
const RESOURCES: Set = 1 << 12;
const DEPTH: Set = 1 << 13;
const REMOTE_QP: Set = 1 << 14;

/// The attributes that are set, besides the state.
fn present(attributes: &QpAttributes) -> Set {
    let QpAttributes {
        state: _,
        rights,
        partition_index,
        port,
        queue_key,
        path,
        mtu,
        timeout,
        retries,
        rnr_retries,
        rnr_timer,
        receive_psn,
        send_psn,
        responder_resources,
        initiator_depth,
        remote_qp,
    } = attributes;
    let all = [
        rights.is_some(),
        partition_index.is_some(),
        port.is_some(),
        queue_key.is_some(),
        path.is_some(),
        mtu.is_some(),
        timeout.is_some(),
        retries.is_some(),
        rnr_retries.is_some(),
        rnr_timer.is_some(),
        receive_psn.is_some(),
        send_psn.is_some(),
        responder_resources.is_some(),
        initiator_depth.is_some(),
        remote_qp.is_some(),
    ];
    all.iter().enumerate().fold(0, |set, (bit, is_set)| set | Set::from(*is_set) << bit)
}

/// What a transition needs and allows.
struct Row {
    needed: Set,
    allowed: Set,
}

/// What the other half of an XRC uses. Programs set it for both, and Linux' `modify_qp_mask` leaves it out.
const fn of_other_half(kind: QpKind) -> Set {
    match kind {
        QpKind::XrcSend => RESOURCES | RNR_TIMER,
        QpKind::XrcReceive => RETRIES | RNR_RETRIES | DEPTH,
        _ => 0,
    }
}

/// Picks by the kind of the queue pair.
fn by_kind(kind: QpKind, rc: Set, uc: Set, ud: Set) -> Set {
    match kind {
        QpKind::Rc => rc,
        QpKind::XrcSend | QpKind::XrcReceive => rc & !of_other_half(kind),
        QpKind::Uc => uc,
        QpKind::Ud => ud,
        // Frames have neither keys nor numbers.
        QpKind::RawPacket => ud & PORT,
    }
}

/// The row of a transition; `None` where there is no such transition.
fn row(kind: QpKind, from: QpState, to: QpState) -> Option<Row> {
    use QpState::*;
    let pick = |rc, uc, ud| by_kind(kind, rc, uc, ud);
    let (needed, allowed) = match (from, to) {
        (_, Reset | Error) => (0, 0),
        (Reset, Init) => {
            let connected = PARTITION | PORT | RIGHTS;
            (pick(connected, connected, PARTITION | PORT | QUEUE_KEY), 0)
        }
        (Init, Init) => {
            let connected = PARTITION | PORT | RIGHTS;
            (0, pick(connected, connected, PARTITION | PORT | QUEUE_KEY))
        }
        (Init, ReadyToReceive) => {
            let connected = PATH | MTU | REMOTE_QP | RECEIVE_PSN;
            let allowed = RIGHTS | PARTITION;
            (pick(connected | RESOURCES | RNR_TIMER, connected, 0), pick(allowed, allowed, PARTITION | QUEUE_KEY))
        }
        (ReadyToReceive, ReadyToSend) => {
            let reliable = TIMEOUT | RETRIES | RNR_RETRIES | SEND_PSN | DEPTH;
            (pick(reliable, SEND_PSN, SEND_PSN), pick(RIGHTS | RNR_TIMER, RIGHTS, QUEUE_KEY))
        }
        (ReadyToSend | SendQueueDrained, ReadyToSend) => (0, pick(RIGHTS | RNR_TIMER, RIGHTS, QUEUE_KEY)),
        (SendQueueError, ReadyToSend) if !kind.is_reliable() => (0, pick(0, RIGHTS, QUEUE_KEY)),
        (ReadyToSend, SendQueueDrained) => (0, 0),
        (SendQueueDrained, SendQueueDrained) => {
            let reliable = PORT | TIMEOUT | RETRIES | RNR_RETRIES | DEPTH | RESOURCES | RNR_TIMER;
            let connected = PATH | RIGHTS | PARTITION;
            (0, pick(connected | reliable, connected, PARTITION | QUEUE_KEY))
        }
        _ => return None,
    };
    Some(Row { needed, allowed })
}

/// Checks a modification, and returns the state that follows.
// Meets IBTA: 10.3.1-a.
pub(crate) fn check(
    kind: QpKind,
    from: QpState,
    attributes: &QpAttributes,
    limits: &Limits,
) -> Result<QpState, Refusal> {
    let to = attributes.state.unwrap_or(from);
    let row = row(kind, from, to).ok_or(Refusal::Invalid("the queue pair cannot go from its state to that one"))?;
    let present = present(attributes) & !of_other_half(kind);
    if row.needed & !present != 0 {
        return Err(Refusal::Invalid("the transition needs an attribute that is not set"));
    }
    if present & !(row.needed | row.allowed) != 0 {
        return Err(Refusal::Invalid("an attribute is set that the transition does not allow"));
    }
    check_values(attributes, limits)?;
    Ok(to)
}

fn check_values(attributes: &QpAttributes, limits: &Limits) -> Result<(), Refusal> {
    let too_large = |value: Option<u8>, most: u8| value.is_some_and(|value| value > most);
    let wrong = [
        (attributes.port.is_some_and(|port| port != 1), "the device has port 1 only"),
        (attributes.partition_index.is_some_and(|index| index != 0), "the partition key table has one entry"),
        (too_large(attributes.timeout, 31), "a time-out is a code of 5 bits"),
        (too_large(attributes.retries, 7) || too_large(attributes.rnr_retries, 7), "a retry count is at most 7"),
        (too_large(attributes.rnr_timer, 31), "an RNR timer is a code of 5 bits"),
        (
            too_large(attributes.responder_resources, limits.reads)
                || too_large(attributes.initiator_depth, limits.reads),
            "more reads and atomics than the device has outstanding",
        ),
    ];
    match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, why)) => Err(Refusal::Invalid(why)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::Rights;
    use verbs::{AddressVector, Mtu};

    fn to(state: QpState) -> QpAttributes {
        QpAttributes { state: Some(state), ..QpAttributes::default() }
    }

    fn init() -> QpAttributes {
        QpAttributes { partition_index: Some(0), port: Some(1), rights: Some(Rights::NONE), ..to(QpState::Init) }
    }

    fn ready_to_receive() -> QpAttributes {
        QpAttributes {
            path: Some(AddressVector::default()),
            mtu: Some(Mtu::B1024),
            remote_qp: Some(1),
            receive_psn: Some(0),
            responder_resources: Some(1),
            rnr_timer: Some(12),
            ..to(QpState::ReadyToReceive)
        }
    }

    fn checked(kind: QpKind, from: QpState, attributes: &QpAttributes) -> Option<QpState> {
        check(kind, from, attributes, &Limits::default()).ok()
    }

    // Checks IBTA: 10.3.1-a.
    #[test]
    fn a_reliable_connection_goes_its_way() {
        use QpState::*;
        assert_eq!(checked(QpKind::Rc, Reset, &init()), Some(Init));
        assert_eq!(checked(QpKind::Rc, Init, &ready_to_receive()), Some(ReadyToReceive));
        let missing = QpAttributes { rnr_timer: None, ..ready_to_receive() };
        assert_eq!(checked(QpKind::Rc, Init, &missing), None);
        let extra = QpAttributes { queue_key: Some(1), ..ready_to_receive() };
        assert_eq!(checked(QpKind::Rc, Init, &extra), None);
        assert_eq!(
            checked(QpKind::Rc, Init, &QpAttributes { responder_resources: Some(129), ..ready_to_receive() }),
            None
        );
        assert_eq!(checked(QpKind::Rc, Reset, &ready_to_receive()), None);
    }

    // Checks IBTA: 10.3.1-a.
    #[test]
    fn datagrams_need_a_queue_key_and_no_path() {
        use QpState::*;
        let init = QpAttributes { rights: None, queue_key: Some(1), ..init() };
        assert_eq!(checked(QpKind::Ud, Reset, &init), Some(Init));
        assert_eq!(checked(QpKind::Ud, Init, &to(ReadyToReceive)), Some(ReadyToReceive));
        let send = QpAttributes { send_psn: Some(5), ..to(ReadyToSend) };
        assert_eq!(checked(QpKind::Ud, ReadyToReceive, &send), Some(ReadyToSend));
        assert_eq!(checked(QpKind::Ud, ReadyToReceive, &to(ReadyToSend)), None);
    }

    // Checks IBTA: 10.3.1-a.
    #[test]
    fn reset_and_error_are_reached_from_every_state() {
        for from in QpState::ALL {
            for end in [QpState::Reset, QpState::Error] {
                assert_eq!(checked(QpKind::Rc, *from, &to(end)), Some(end));
            }
        }
        for end in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend, QpState::SendQueueDrained] {
            assert_eq!(checked(QpKind::Ud, QpState::Error, &to(end)), None);
        }
        assert_eq!(checked(QpKind::Rc, QpState::SendQueueError, &to(QpState::ReadyToSend)), None);
        assert_eq!(checked(QpKind::Ud, QpState::SendQueueError, &to(QpState::ReadyToSend)), Some(QpState::ReadyToSend));
    }
}
