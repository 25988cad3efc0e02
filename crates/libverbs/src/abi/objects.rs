//! Contexts, the objects of a context, what they are made of, and what is posted to them: structures that point to each
//! other.
use super::device::{IbvDeviceAttrEx, IbvGid, IbvPortAttr, IbvValuesEx};
use super::work::{IbvDataBuf, IbvRecvWr, IbvSge, IbvWc};
use libc::{c_char, c_int, c_uint, c_void, pthread_cond_t, pthread_mutex_t};

/// A function that this library does not have: programs find a null pointer and report `EOPNOTSUPP`.
pub(crate) type Absent = usize;

/// Bytes of a name of a device.
pub(crate) const NAME_BYTES: usize = 64;
/// Bytes of a path in sysfs.
pub(crate) const PATH_BYTES: usize = 256;

#[repr(C)]
pub(crate) struct IbvDevice {
    pub(crate) ops: [usize; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; NAME_BYTES],
    pub(crate) dev_name: [c_char; NAME_BYTES],
    pub(crate) dev_path: [c_char; PATH_BYTES],
    pub(crate) ibdev_path: [c_char; PATH_BYTES],
}

pub(crate) type Post<O, R> = unsafe extern "C" fn(*mut O, *mut R, *mut *mut R) -> c_int;

/// The verbs that are inline functions in programs.
#[repr(C)]
pub(crate) struct IbvContextOps {
    pub(crate) compat_until_dereg_mr: [Absent; 7],
    pub(crate) alloc_mw: unsafe extern "C" fn(*mut IbvPd, c_int) -> *mut IbvMw,
    pub(crate) bind_mw: extern "C" fn() -> c_int,
    pub(crate) dealloc_mw: unsafe extern "C" fn(*mut IbvMw) -> c_int,
    pub(crate) compat_create_cq: Absent,
    pub(crate) poll_cq: unsafe extern "C" fn(*mut IbvCq, c_int, *mut IbvWc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int,
    pub(crate) compat_until_destroy_srq: [Absent; 7],
    pub(crate) post_srq_recv: Post<IbvSrq, IbvRecvWr>,
    pub(crate) compat_until_destroy_qp: [Absent; 4],
    pub(crate) post_send: Post<IbvQp, IbvSendWr>,
    pub(crate) post_recv: Post<IbvQp, IbvRecvWr>,
    pub(crate) compat_until_async_event: [Absent; 5],
}

#[repr(C)]
pub(crate) struct IbvContext {
    pub(crate) device: *mut IbvDevice,
    pub(crate) ops: IbvContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) abi_compat: *mut c_void,
}

/// What stands in front of a context (`struct verbs_context`): it grows towards lower addresses.
#[repr(C)]
pub(crate) struct VerbsContext {
    pub(crate) query_port: unsafe extern "C" fn(*mut IbvContext, u8, *mut IbvPortAttr, usize) -> c_int,
    pub(crate) advise_mr: Absent,
    pub(crate) alloc_null_mr: Absent,
    pub(crate) counters: [Absent; 4],
    pub(crate) device_memory: [Absent; 3],
    pub(crate) flow_actions: [Absent; 3],
    pub(crate) modify_qp_rate_limit: Absent,
    pub(crate) parent_domains: [Absent; 3],
    pub(crate) modify_cq: Absent,
    pub(crate) post_srq_ops: Absent,
    pub(crate) work_queues: [Absent; 5],
    pub(crate) query_rt_values: unsafe extern "C" fn(*mut IbvContext, *mut IbvValuesEx) -> c_int,
    pub(crate) create_cq_ex: unsafe extern "C" fn(*mut IbvContext, *mut IbvCqInitAttrEx) -> *mut IbvCqEx,
    pub(crate) private: usize,
    pub(crate) query_device_ex: unsafe extern "C" fn(*mut IbvContext, *const u32, *mut IbvDeviceAttrEx, usize) -> c_int,
    pub(crate) destroy_flow: unsafe extern "C" fn(*mut IbvFlow) -> c_int,
    pub(crate) flow_placeholder: Absent,
    pub(crate) create_flow: unsafe extern "C" fn(*mut IbvQp, *mut IbvFlowAttr) -> *mut IbvFlow,
    pub(crate) flow_placeholder_too: Absent,
    pub(crate) open_qp: Absent,
    pub(crate) create_qp_ex: unsafe extern "C" fn(*mut IbvContext, *mut IbvQpInitAttrEx) -> *mut IbvQp,
    pub(crate) get_srq_num: unsafe extern "C" fn(*mut IbvSrq, *mut u32) -> c_int,
    pub(crate) create_srq_ex: unsafe extern "C" fn(*mut IbvContext, *mut IbvSrqInitAttrEx) -> *mut IbvSrq,
    pub(crate) open_xrcd: unsafe extern "C" fn(*mut IbvContext, *mut IbvXrcdInitAttr) -> *mut IbvXrcd,
    pub(crate) close_xrcd: unsafe extern "C" fn(*mut IbvXrcd) -> c_int,
    pub(crate) placeholder: u64,
    pub(crate) sz: usize,
    pub(crate) context: IbvContext,
}

/// A rule for frames (`struct ibv_flow_attr`); specifications follow.
#[repr(C)]
pub(crate) struct IbvFlowAttr {
    pub(crate) comp_mask: u32,
    pub(crate) kind: c_int,
    pub(crate) size: u16,
    pub(crate) priority: u16,
    pub(crate) num_of_specs: u8,
    pub(crate) port: u8,
    pub(crate) flags: u32,
}

#[repr(C)]
pub(crate) struct IbvFlow {
    pub(crate) comp_mask: u32,
    pub(crate) context: *mut IbvContext,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct IbvCompChannel {
    pub(crate) context: *mut IbvContext,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct IbvAsyncEvent {
    /// A pointer to the object, or a port's number.
    pub(crate) element: *mut c_void,
    pub(crate) event_type: c_int,
}

#[repr(C)]
pub(crate) struct IbvPd {
    pub(crate) context: *mut IbvContext,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct IbvMr {
    pub(crate) context: *mut IbvContext,
    pub(crate) pd: *mut IbvPd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IbvGlobalRoute {
    pub(crate) dgid: IbvGid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

#[repr(C)]
pub(crate) struct IbvGrh {
    pub(crate) version_tclass_flow: u32,
    pub(crate) paylen: u16,
    pub(crate) next_hdr: u8,
    pub(crate) hop_limit: u8,
    pub(crate) sgid: IbvGid,
    pub(crate) dgid: IbvGid,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IbvAhAttr {
    pub(crate) grh: IbvGlobalRoute,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

#[repr(C)]
pub(crate) struct IbvAh {
    pub(crate) context: *mut IbvContext,
    pub(crate) pd: *mut IbvPd,
    pub(crate) handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IbvSrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IbvSrqInitAttr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: IbvSrqAttr,
}

/// As for queue pairs: without the plain structure's padding.
#[repr(C)]
pub(crate) struct IbvSrqInitAttrEx {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: IbvSrqAttr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: c_int,
    pub(crate) pd: *mut IbvPd,
    pub(crate) xrcd: *mut IbvXrcd,
    pub(crate) cq: *mut IbvCq,
    pub(crate) tm_cap: [u32; 2],
}

#[repr(C)]
pub(crate) struct IbvXrcd {
    pub(crate) context: *mut IbvContext,
}

#[repr(C)]
pub(crate) struct IbvXrcdInitAttr {
    pub(crate) comp_mask: u32,
    pub(crate) fd: c_int,
    pub(crate) oflags: c_int,
}

#[repr(C)]
pub(crate) struct IbvSrq {
    pub(crate) context: *mut IbvContext,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut IbvPd,
    pub(crate) handle: u32,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IbvQpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IbvQpInitAttr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut IbvCq,
    pub(crate) recv_cq: *mut IbvCq,
    pub(crate) srq: *mut IbvSrq,
    pub(crate) cap: IbvQpCap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// As `struct ibv_qp_init_attr_ex`, which begins with the members of the plain structure, without its padding.
#[repr(C)]
pub(crate) struct IbvQpInitAttrEx {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut IbvCq,
    pub(crate) recv_cq: *mut IbvCq,
    pub(crate) srq: *mut IbvSrq,
    pub(crate) cap: IbvQpCap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) pd: *mut IbvPd,
    pub(crate) xrcd: *mut IbvXrcd,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: *mut c_void,
    pub(crate) rx_hash_conf: RxHashConf,
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}

#[repr(C)]
pub(crate) struct RxHashConf {
    pub(crate) function: u8,
    pub(crate) key_len: u8,
    pub(crate) key: *mut u8,
    pub(crate) fields_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IbvQpAttr {
    pub(crate) qp_state: c_int,
    pub(crate) cur_qp_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) path_mig_state: c_int,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: IbvQpCap,
    pub(crate) ah_attr: IbvAhAttr,
    pub(crate) alt_ah_attr: IbvAhAttr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

#[repr(C)]
pub(crate) struct IbvQp {
    pub(crate) context: *mut IbvContext,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut IbvPd,
    pub(crate) send_cq: *mut IbvCq,
    pub(crate) recv_cq: *mut IbvCq,
    pub(crate) srq: *mut IbvSrq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: c_int,
    pub(crate) qp_type: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
pub(crate) struct IbvCq {
    pub(crate) context: *mut IbvContext,
    pub(crate) channel: *mut IbvCompChannel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

#[repr(C)]
pub(crate) struct IbvCqInitAttrEx {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut IbvCompChannel,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: *mut IbvPd,
}

#[repr(C)]
pub(crate) struct IbvEce {
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
    pub(crate) comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrRdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrAtomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrUd {
    pub(crate) ah: *mut IbvAh,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

#[repr(C)]
pub(crate) union WrTarget {
    pub(crate) rdma: WrRdma,
    pub(crate) atomic: WrAtomic,
    pub(crate) ud: WrUd,
}

#[repr(C)]
pub(crate) struct IbvSendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut IbvSendWr,
    pub(crate) sg_list: *mut IbvSge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    /// Immediate data in network byte order, or a key to invalidate.
    pub(crate) imm_data: u32,
    pub(crate) wr: WrTarget,
    pub(crate) remote_srqn: u32,
    pub(crate) bind_mw: WrBind,
}

/// The binding of a memory window, which has the place of what segments a TCP stream.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrBind {
    pub(crate) mw: *mut IbvMw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: IbvMwBindInfo,
}

impl WrBind {
    /// Of work requests that bind nothing.
    pub(crate) const NONE: WrBind = WrBind {
        mw: std::ptr::null_mut(),
        rkey: 0,
        bind_info: IbvMwBindInfo { mr: std::ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 },
    };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IbvMwBindInfo {
    pub(crate) mr: *mut IbvMr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}

#[repr(C)]
pub(crate) struct IbvMw {
    pub(crate) context: *mut IbvContext,
    pub(crate) pd: *mut IbvPd,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) kind: c_int,
}

type Q = *mut IbvQpEx;

#[repr(C)]
pub(crate) struct IbvQpEx {
    pub(crate) qp_base: IbvQp,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: u64,
    pub(crate) wr_flags: c_uint,
    pub(crate) wr_atomic_cmp_swp: unsafe extern "C" fn(Q, u32, u64, u64, u64),
    pub(crate) wr_atomic_fetch_add: unsafe extern "C" fn(Q, u32, u64, u64),
    pub(crate) wr_bind_mw: unsafe extern "C" fn(Q, *mut IbvMw, u32, *const IbvMwBindInfo),
    pub(crate) wr_local_inv: unsafe extern "C" fn(Q, u32),
    pub(crate) wr_rdma_read: unsafe extern "C" fn(Q, u32, u64),
    pub(crate) wr_rdma_write: unsafe extern "C" fn(Q, u32, u64),
    pub(crate) wr_rdma_write_imm: unsafe extern "C" fn(Q, u32, u64, u32),
    pub(crate) wr_send: unsafe extern "C" fn(Q),
    pub(crate) wr_send_imm: unsafe extern "C" fn(Q, u32),
    pub(crate) wr_send_inv: unsafe extern "C" fn(Q, u32),
    pub(crate) wr_send_tso: unsafe extern "C" fn(Q, *mut c_void, u16, u16),
    pub(crate) wr_set_ud_addr: unsafe extern "C" fn(Q, *mut IbvAh, u32, u32),
    pub(crate) wr_set_xrc_srqn: unsafe extern "C" fn(Q, u32),
    pub(crate) wr_set_inline_data: unsafe extern "C" fn(Q, *mut c_void, usize),
    pub(crate) wr_set_inline_data_list: unsafe extern "C" fn(Q, usize, *const IbvDataBuf),
    pub(crate) wr_set_sge: unsafe extern "C" fn(Q, u32, u64, u32),
    pub(crate) wr_set_sge_list: unsafe extern "C" fn(Q, usize, *const IbvSge),
    pub(crate) wr_start: unsafe extern "C" fn(Q),
    pub(crate) wr_complete: unsafe extern "C" fn(Q) -> c_int,
    pub(crate) wr_abort: unsafe extern "C" fn(Q),
    pub(crate) wr_atomic_write: unsafe extern "C" fn(Q, u32, u64, *const c_void),
}

type C = *mut IbvCqEx;
type Read<T> = unsafe extern "C" fn(C) -> T;

#[repr(C)]
pub(crate) struct IbvCqEx {
    pub(crate) base: IbvCq,
    pub(crate) comp_mask: u32,
    pub(crate) status: c_int,
    pub(crate) wr_id: u64,
    pub(crate) start_poll: unsafe extern "C" fn(C, *const u32) -> c_int,
    pub(crate) next_poll: unsafe extern "C" fn(C) -> c_int,
    pub(crate) end_poll: unsafe extern "C" fn(C),
    pub(crate) read_opcode: Read<c_int>,
    pub(crate) read_vendor_err: Read<u32>,
    pub(crate) read_byte_len: Read<u32>,
    pub(crate) read_imm_data: Read<u32>,
    pub(crate) read_qp_num: Read<u32>,
    pub(crate) read_src_qp: Read<u32>,
    pub(crate) read_wc_flags: Read<c_uint>,
    pub(crate) read_slid: Read<u32>,
    pub(crate) read_sl: Read<u8>,
    pub(crate) read_dlid_path_bits: Read<u8>,
    pub(crate) read_completion_ts: Read<u64>,
    pub(crate) read_cvlan: Read<u16>,
    pub(crate) read_flow_tag: Read<u32>,
    pub(crate) read_tm_info: unsafe extern "C" fn(C, *mut c_void),
    pub(crate) read_completion_wallclock_ns: Read<u64>,
}
