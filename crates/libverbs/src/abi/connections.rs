//! The structures of `rdma/rdma_cma.h`.
use super::device::IbvGid;
use super::objects::{IbvAhAttr, IbvCompChannel, IbvContext, IbvCq, IbvPd, IbvQp, IbvSrq};
use libc::{c_char, c_int, c_void, sockaddr, sockaddr_storage, socklen_t};

#[repr(C)]
pub(crate) struct RdmaIbAddr {
    pub(crate) sgid: IbvGid,
    pub(crate) dgid: IbvGid,
    pub(crate) pkey: u16,
}

#[repr(C)]
pub(crate) struct RdmaAddr {
    pub(crate) src: sockaddr_storage,
    pub(crate) dst: sockaddr_storage,
    pub(crate) ibaddr: RdmaIbAddr,
}

#[repr(C)]
pub(crate) struct RdmaRoute {
    pub(crate) addr: RdmaAddr,
    pub(crate) path_rec: *mut c_void,
    pub(crate) num_paths: c_int,
}

#[repr(C)]
pub(crate) struct RdmaEventChannel {
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct RdmaCmId {
    pub(crate) verbs: *mut IbvContext,
    pub(crate) channel: *mut RdmaEventChannel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut IbvQp,
    pub(crate) route: RdmaRoute,
    pub(crate) ps: c_int,
    pub(crate) port_num: u8,
    pub(crate) event: *mut RdmaCmEvent,
    pub(crate) send_cq_channel: *mut IbvCompChannel,
    pub(crate) send_cq: *mut IbvCq,
    pub(crate) recv_cq_channel: *mut IbvCompChannel,
    pub(crate) recv_cq: *mut IbvCq,
    pub(crate) srq: *mut IbvSrq,
    pub(crate) pd: *mut IbvPd,
    pub(crate) qp_type: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RdmaConnParam {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RdmaUdParam {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) ah_attr: IbvAhAttr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union RdmaParam {
    pub(crate) conn: RdmaConnParam,
    pub(crate) ud: RdmaUdParam,
}

#[repr(C)]
pub(crate) struct RdmaCmEvent {
    pub(crate) id: *mut RdmaCmId,
    pub(crate) listen_id: *mut RdmaCmId,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) param: RdmaParam,
}

#[repr(C)]
pub(crate) struct RdmaAddrInfo {
    pub(crate) ai_flags: c_int,
    pub(crate) ai_family: c_int,
    pub(crate) ai_qp_type: c_int,
    pub(crate) ai_port_space: c_int,
    pub(crate) ai_src_len: socklen_t,
    pub(crate) ai_dst_len: socklen_t,
    pub(crate) ai_src_addr: *mut sockaddr,
    pub(crate) ai_dst_addr: *mut sockaddr,
    pub(crate) ai_src_canonname: *mut c_char,
    pub(crate) ai_dst_canonname: *mut c_char,
    pub(crate) ai_route_len: usize,
    pub(crate) ai_route: *mut c_void,
    pub(crate) ai_connect_len: usize,
    pub(crate) ai_connect: *mut c_void,
    pub(crate) ai_next: *mut RdmaAddrInfo,
}
