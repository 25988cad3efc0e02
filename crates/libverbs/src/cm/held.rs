//! Events that the program has and acknowledges.
use super::identifier::Id;
use crate::abi::{RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaParam, RdmaUdParam};
use crate::errno;
use crate::handle;
use libc::{c_int, c_void};
use verbs::connections::{DATAGRAM_KEY, Parameters};
use verbs::{AddressVector, Gid};

/// The queue pair that stands for all members of a group.
const MULTICAST_QP: u32 = verbs::QP_MASK;

/// `enum rdma_cm_event_type`.
pub(crate) mod kind {
    use libc::c_int;
    pub(crate) const ADDR_RESOLVED: c_int = 0;
    pub(crate) const ADDR_ERROR: c_int = 1;
    pub(crate) const ROUTE_RESOLVED: c_int = 2;
    pub(crate) const CONNECT_REQUEST: c_int = 4;
    pub(crate) const CONNECT_RESPONSE: c_int = 5;
    pub(crate) const CONNECT_ERROR: c_int = 6;
    pub(crate) const UNREACHABLE: c_int = 7;
    pub(crate) const REJECTED: c_int = 8;
    pub(crate) const ESTABLISHED: c_int = 9;
    pub(crate) const DISCONNECTED: c_int = 10;
    pub(crate) const MULTICAST_JOIN: c_int = 12;
    pub(crate) const MULTICAST_ERROR: c_int = 13;
    pub(crate) const TIMEWAIT_EXIT: c_int = 15;
}

/// An event that the program has.
#[repr(C)]
struct Held {
    public: RdmaCmEvent,
    /// Private data; the public part points there.
    _data: Vec<u8>,
}

/// The fields of an event.
pub(crate) struct Shape {
    pub(crate) kind: c_int,
    pub(crate) status: c_int,
    pub(crate) details: EventDetails,
}

/// What an event contains.
pub(crate) enum EventDetails {
    Nothing,
    /// Of a connection.
    Connection(Parameters),
    /// Of datagrams: private data, queue pair, queue key.
    Datagrams(Vec<u8>, u32, u32),
    /// Of a multicast group: its GID, and what the program passed when it joined.
    Group {
        group: Gid,
        context: usize,
    },
}

impl Shape {
    pub(crate) fn of(kind: c_int, status: c_int) -> Shape {
        Shape { kind, status, details: EventDetails::Nothing }
    }
}

/// An event for the program, which acknowledges it by [`rdma_ack_cm_event`]; `remote` is the peer's GID.
pub(crate) fn held(id: *mut RdmaCmId, listen_id: *mut RdmaCmId, shape: Shape, remote: Gid) -> *mut RdmaCmEvent {
    let Shape { kind, status, details } = shape;
    let mut data = Vec::new();
    // SAFETY: zeros are a valid value of each.
    let mut param: RdmaParam = unsafe { std::mem::zeroed() };
    match details {
        EventDetails::Nothing => {}
        EventDetails::Connection(parameters) => {
            param.conn = connection(&parameters);
            data = parameters.data;
            param.conn.private_data = at(&data);
        }
        EventDetails::Datagrams(bytes, qp_num, qkey) => {
            data = bytes;
            let path = AddressVector { gid: remote, gid_index: 1, hop_limit: 64, ..AddressVector::default() };
            param.ud = RdmaUdParam {
                private_data: at(&data),
                private_data_len: data.len().min(255) as u8,
                ah_attr: handle::attributes(&path, 1),
                qp_num,
                qkey,
            };
        }
        EventDetails::Group { group, context } => {
            let path = AddressVector { gid: group, gid_index: 1, hop_limit: 1, ..AddressVector::default() };
            param.ud = RdmaUdParam {
                private_data: context as *const c_void,
                private_data_len: 0,
                ah_attr: handle::attributes(&path, 1),
                qp_num: MULTICAST_QP,
                qkey: DATAGRAM_KEY,
            };
        }
    }
    let public = RdmaCmEvent { id, listen_id, event: kind, status, param };
    Box::into_raw(Box::new(Held { public, _data: data })).cast()
}

/// Where private data are; nowhere, where there are none.
fn at(data: &[u8]) -> *const c_void {
    if data.is_empty() { std::ptr::null() } else { data.as_ptr().cast() }
}

fn connection(parameters: &Parameters) -> RdmaConnParam {
    RdmaConnParam {
        private_data: std::ptr::null(),
        private_data_len: parameters.data.len().min(255) as u8,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        flow_control: parameters.flow_control.into(),
        retry_count: parameters.retries,
        rnr_retry_count: parameters.rnr_retries,
        srq: parameters.srq.into(),
        qp_num: parameters.qp,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut RdmaCmEvent) -> c_int {
    if event.is_null() {
        return errno::minus_one(Err(libc::EINVAL));
    }
    // SAFETY: `rdma_get_cm_event` gave it, and the program uses it no more.
    let held = unsafe { Box::from_raw(event.cast::<Held>()) };
    let RdmaCmEvent { id, listen_id, .. } = held.public;
    // SAFETY: an identifier waits for this before it is freed.
    unsafe { Id::of(if listen_id.is_null() { id } else { listen_id }) }.events.acknowledge(1);
    0
}
