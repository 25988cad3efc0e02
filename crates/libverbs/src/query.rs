//! Queries: attributes of the device, its port and its tables.
use crate::abi::{
    IbvContext, IbvDeviceAttr, IbvDeviceAttrEx, IbvGid, IbvGidEntry, IbvPortAttr, IbvValuesEx, OdpCaps, RssCaps,
};
use crate::context::Context;
use crate::device::{guid, text};
use crate::errno::{self, Result};
use libc::{c_int, c_uint};
use std::mem::{offset_of, size_of};
use verbs::attach::Device;
use verbs::port::{self, Link, PARTITION};

/// The device's only port.
const PORT: u32 = 1;
/// `IBV_DEVICE_PORT_ACTIVE_EVENT`, `IBV_DEVICE_SYS_IMAGE_GUID`, `IBV_DEVICE_RC_RNR_NAK_GEN`,
/// `IBV_DEVICE_MEM_WINDOW_TYPE_2B`.
const FEATURES: c_uint = 1 << 10 | 1 << 11 | 1 << 12 | 1 << 24;
/// `IBV_DEVICE_XRC`.
const WITH_XRC: c_uint = 1 << 20;
/// `IBV_ATOMIC_HCA`: atomics of the device exclude each other, and nothing else.
const ATOMIC_AMONG_ITSELF: c_int = 1;
/// `IBV_ATOMIC_NONE`.
const NO_ATOMICS: c_int = 0;
/// `IBV_PORT_ACTIVE`; `IBV_MTU_4096`; "link up" of the physical port; `IBV_LINK_LAYER_ETHERNET`.
const ACTIVE: c_int = 4;
const LARGEST_MTU: c_int = 5;
const LINK_UP: u8 = 5;
const ETHERNET: u8 = 2;
/// `IBV_GID_TYPE_ROCE_V2`, in a table of GIDs and in the private call.
const ROCE_V2: u32 = 2;
const ROCE_V2_OF_SYSFS: c_int = 1;
/// Completions have the time in nanoseconds: a clock of 1 GHz, in kHz.
const CLOCK_KHZ: u64 = 1_000_000;
/// `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

/// A signed number of C, where the daemon's is larger.
fn int(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

fn features(device: &Device) -> c_uint {
    FEATURES | if device.xrc { WITH_XRC } else { 0 }
}

fn device_attributes(device: &Device) -> IbvDeviceAttr {
    let limits = &device.limits;
    let guid = guid(device.mac);
    IbvDeviceAttr {
        fw_ver: text(env!("CARGO_PKG_VERSION")),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: limits.region_bytes,
        // Any size of pages: the data-path has no tables of them.
        page_size_cap: !0xfff,
        vendor_id: 0,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: int(limits.qps),
        max_qp_wr: int(limits.work_requests),
        device_cap_flags: features(device),
        max_sge: int(limits.pieces),
        max_sge_rd: int(limits.pieces),
        max_cq: int(limits.cqs),
        max_cqe: int(limits.completions),
        max_mr: int(limits.regions),
        max_pd: int(limits.domains),
        max_qp_rd_atom: limits.reads.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(u32::from(limits.reads).saturating_mul(limits.qps)),
        max_qp_init_rd_atom: limits.reads.into(),
        max_ee_init_rd_atom: 0,
        atomic_cap: if device.atomics { ATOMIC_AMONG_ITSELF } else { NO_ATOMICS },
        max_ee: 0,
        max_rdd: 0,
        max_mw: int(limits.windows),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: int(limits.memberships),
        max_mcast_qp_attach: int(limits.memberships),
        max_total_mcast_qp_attach: int(limits.memberships),
        max_ah: int(limits.handles),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(limits.srqs),
        max_srq_wr: int(limits.work_requests),
        max_srq_sge: int(limits.pieces),
        max_pkeys: 1,
        local_ca_ack_delay: 0,
        phys_port_cnt: 1,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut IbvContext, into: *mut IbvDeviceAttr) -> c_int {
    // SAFETY: the program passes an open context and a place for the answer.
    unsafe { into.write(device_attributes(Context::of(context).attachment.device())) };
    0
}

/// `ibv_query_device_ex`: programs compiled with an older header have room for less.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut IbvContext,
    input: *const u32,
    into: *mut IbvDeviceAttrEx,
    room: usize,
) -> c_int {
    // SAFETY: input is one word, `comp_mask`, or null.
    let mask = unsafe { input.as_ref() }.copied().unwrap_or(0);
    if mask != 0 || room < size_of::<IbvDeviceAttr>() {
        return errno::number(Err(libc::EINVAL));
    }
    // SAFETY: the program passes an open context.
    let device = unsafe { Context::of(context) }.attachment.device();
    let found = IbvDeviceAttrEx {
        orig_attr: device_attributes(device),
        comp_mask: 0,
        odp_caps: OdpCaps { general_caps: 0, per_transport_caps: [0; 3] },
        completion_timestamp_mask: u64::MAX,
        hca_core_clock: CLOCK_KHZ,
        device_cap_flags_ex: features(device).into(),
        tso_caps: [0; 2],
        rss_caps: RssCaps { most: [0; 3], rx_hash_fields_mask: 0, rx_hash_function: 0 },
        max_wq_type_rq: 0,
        packet_pacing_caps: [0; 3],
        raw_packet_caps: 0,
        tm_caps: [0; 5],
        cq_mod_caps: [0; 2],
        max_dm_size: 0,
        pci_atomic_caps: [0; 3],
        xrc_odp_caps: 0,
        phys_port_cnt_ex: 1,
    };
    // SAFETY: the program passes a place of so many bytes.
    unsafe { copy(&found, into, room) };
    0
}

/// Copies as much of a structure as there is room for, and fills the rest with zeros.
///
/// # Safety
/// `into` is a place of `room` bytes.
unsafe fn copy<T>(found: &T, into: *mut T, room: usize) {
    let bytes = room.min(size_of::<T>());
    // SAFETY: as the caller guarantees; all members are integers.
    unsafe {
        into.cast::<u8>().write_bytes(0, room);
        into.cast::<u8>().copy_from_nonoverlapping(std::ptr::from_ref(found).cast(), bytes);
    }
}

/// `ibv_query_rt_values_ex`: the time by the clock of completions.
pub(crate) unsafe extern "C" fn query_rt_values(_context: *mut IbvContext, values: *mut IbvValuesEx) -> c_int {
    // SAFETY: the program passes its values, which ask and answer.
    let values = unsafe { &mut *values };
    if values.comp_mask & !RAW_CLOCK != 0 {
        return errno::number(Err(libc::EOPNOTSUPP));
    }
    // SAFETY: writes a member.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut values.raw_clock) };
    0
}

fn port_attributes(device: &Device) -> IbvPortAttr {
    let link = Link::of(device.speed);
    IbvPortAttr {
        state: ACTIVE,
        max_mtu: LARGEST_MTU,
        active_mtu: device.mtu.code().into(),
        gid_tbl_len: int(device.gids.len() as u32),
        port_cap_flags: port::FEATURES,
        max_msg_sz: device.limits.message_bytes,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: link.width(),
        active_speed: link.speed,
        phys_state: LINK_UP,
        link_layer: ETHERNET,
        flags: 0,
        port_cap_flags2: 0,
    }
}

/// `ibv_query_port`, by programs that were compiled since 2019.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut IbvContext,
    port: u8,
    into: *mut IbvPortAttr,
    room: usize,
) -> c_int {
    if u32::from(port) != PORT {
        return errno::number(Err(libc::EINVAL));
    }
    // SAFETY: the program passes an open context and a place of so many bytes.
    unsafe { copy(&port_attributes(Context::of(context).attachment.device()), into, room) };
    0
}

/// `ibv_query_port`, by older programs: their structure ends before the last member.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(context: *mut IbvContext, port: u8, into: *mut IbvPortAttr) -> c_int {
    // SAFETY: as for `query_port`.
    unsafe { query_port(context, port, into, offset_of!(IbvPortAttr, port_cap_flags2)) }
}

/// Entry of the table of GIDs; EINVAL for another port, ENODATA beyond the table.
fn entry(device: &Device, port: u32, index: u32) -> Result<IbvGidEntry> {
    if port != PORT {
        return Err(libc::EINVAL);
    }
    let gid = device.gids.get(index as usize).ok_or(libc::ENODATA)?;
    let gid = IbvGid { raw: gid.0 };
    Ok(IbvGidEntry { gid, gid_index: index, port_num: port, gid_type: ROCE_V2, ndev_ifindex: 0 })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(context: *mut IbvContext, port: u8, index: c_int, into: *mut IbvGid) -> c_int {
    // SAFETY: the program passes an open context.
    let device = unsafe { Context::of(context) }.attachment.device();
    errno::minus_one(entry(device, port.into(), index as u32).map(|entry| {
        // SAFETY: the program passes a place for the answer.
        unsafe { into.write(entry.gid) };
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut IbvContext,
    port: u32,
    index: u32,
    into: *mut IbvGidEntry,
    flags: u32,
    room: usize,
) -> c_int {
    if flags != 0 {
        return errno::number(Err(libc::EOPNOTSUPP));
    }
    // SAFETY: the program passes an open context.
    let device = unsafe { Context::of(context) }.attachment.device();
    errno::number(entry(device, port, index).map(|entry| {
        // SAFETY: the program passes a place of so many bytes.
        unsafe { copy(&entry, into, room) };
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut IbvContext,
    into: *mut IbvGidEntry,
    most: usize,
    flags: u32,
    room: usize,
) -> isize {
    if flags != 0 || room < size_of::<IbvGidEntry>() {
        return -(libc::EOPNOTSUPP as isize);
    }
    // SAFETY: the program passes an open context.
    let device = unsafe { Context::of(context) }.attachment.device();
    let entries = (0..).map_while(|index| entry(device, PORT, index).ok()).take(most);
    let count = entries.enumerate().map(|(at, entry)| {
        // SAFETY: the program passes room for so many entries of so many bytes.
        unsafe { copy(&entry, into.byte_add(at * room), room) };
    });
    count.count() as isize
}

/// The private call by which `ibv_devinfo` asks for the type of a GID.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(context: *mut IbvContext, port: u8, index: c_uint, into: *mut c_int) -> c_int {
    // SAFETY: the program passes an open context.
    let device = unsafe { Context::of(context) }.attachment.device();
    errno::minus_one(entry(device, port.into(), index).map(|_| {
        // SAFETY: the program passes a place for the answer.
        unsafe { *into = ROCE_V2_OF_SYSFS };
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(_context: *mut IbvContext, port: u8, index: c_int, into: *mut u16) -> c_int {
    let known = u32::from(port) == PORT && index == 0;
    errno::minus_one(if known { Ok(()) } else { Err(libc::EINVAL) }.map(|()| {
        // SAFETY: the program passes a place for the answer, which is in network byte order.
        unsafe { *into = PARTITION.to_be() };
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_pkey_index(_context: *mut IbvContext, port: u8, key: u16) -> c_int {
    let known = u32::from(port) == PORT && u16::from_be(key) == PARTITION;
    errno::minus_one(if known { Ok(()) } else { Err(libc::EINVAL) })
}
