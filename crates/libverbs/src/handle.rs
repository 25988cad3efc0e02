//! Address handles, and paths in the form of the contract.
use crate::abi::{IbvAh, IbvAhAttr, IbvContext, IbvGid, IbvGlobalRoute, IbvGrh, IbvPd, IbvWc};
use crate::attachment::Attachment;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::{self, Result};
use libc::c_int;
use std::sync::Arc;
use verbs::control::Request;
use verbs::{AddressVector, Gid, Number};
use wire::ipv4;

/// `IBV_WC_GRH`.
const WITH_GRH: libc::c_uint = 1;
/// Where the IPv4 header stands in the 40 bytes of the GRH (IBTA Annex A17.4.5.2).
const IPV4_AT: usize = 20;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    public: IbvAh,
    attachment: Arc<Attachment>,
    /// Its number.
    pub(crate) number: Number,
}

impl Ah {
    /// The handle behind the public part.
    ///
    /// # Safety
    /// `ibv_create_ah` gave the pointer, and the handle is not destroyed.
    #[inline]
    pub(crate) unsafe fn of<'a>(handle: *mut IbvAh) -> &'a Ah {
        // SAFETY: the public part is its first member.
        unsafe { &*handle.cast() }
    }
}

/// A path that a program names; EINVAL where it has no GID: RoCE needs one.
pub(crate) fn path(attributes: &IbvAhAttr) -> Result<AddressVector> {
    let route = &attributes.grh;
    if attributes.is_global == 0 {
        return Err(libc::EINVAL);
    }
    Ok(AddressVector {
        gid: Gid(route.dgid.raw),
        gid_index: route.sgid_index,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
        flow_label: route.flow_label,
        service_level: attributes.sl,
    })
}

/// And back.
pub(crate) fn attributes(path: &AddressVector, port: u8) -> IbvAhAttr {
    IbvAhAttr {
        grh: IbvGlobalRoute {
            dgid: IbvGid { raw: path.gid.0 },
            flow_label: path.flow_label,
            sgid_index: path.gid_index,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
        },
        dlid: 0,
        sl: path.service_level,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: port,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(domain: *mut IbvPd, attributes: *mut IbvAhAttr) -> *mut IbvAh {
    // SAFETY: the program passes a domain and attributes.
    let (of, attributes) = unsafe { (Domain::of(domain), &*attributes) };
    errno::pointer(path(attributes).and_then(|path| {
        let (number, _) = of.attachment.number(&Request::CreateHandle { domain: of.number, path })?;
        let public = IbvAh { context: of.context(), pd: domain, handle: number };
        let attachment = Arc::clone(&of.attachment);
        Ok(Box::into_raw(Box::new(Ah { public, attachment, number })).cast())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(handle: *mut IbvAh) -> c_int {
    // SAFETY: a handle of the program's.
    let of = unsafe { Ah::of(handle) };
    errno::number(of.attachment.done(&Request::DestroyHandle(of.number)).map(|()| {
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(handle.cast::<Ah>()) });
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut IbvContext,
    port: u8,
    completion: *mut IbvWc,
    header: *mut IbvGrh,
    into: *mut IbvAhAttr,
) -> c_int {
    // SAFETY: the program passes an open context, a completion, its GRH and a place for attributes.
    unsafe {
        let gids = &Context::of(context).attachment.device().gids;
        match back(&*completion, header, gids) {
            Ok(path) => into.write(attributes(&path, port)),
            Err(number) => return errno::minus_one(Err(number)),
        }
    }
    0
}

/// The path back to the sender of a datagram.
///
/// # Safety
/// `header` has 40 bytes where the completion has that flag.
unsafe fn back(completion: &IbvWc, header: *mut IbvGrh, gids: &[Gid]) -> Result<AddressVector> {
    if completion.wc_flags & WITH_GRH == 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller guarantees.
    let bytes: [u8; 40] = unsafe { header.cast::<[u8; 40]>().read_unaligned() };
    let (from, to, class, flow) = ends(&bytes);
    let gid_index = gids.iter().position(|gid| *gid == to).unwrap_or(0) as u8;
    let service_level = completion.sl;
    // Hop limit 0 stands for the host's own.
    Ok(AddressVector { gid: from, gid_index, hop_limit: 0, traffic_class: class, flow_label: flow, service_level })
}

/// Source, destination, traffic class and flow label of an IPv6 header, or of an IPv4 header at the end of these bytes.
/// In front of that, memory is as it was before, and may begin as an IPv6 header: so a right checksum counts more.
fn ends(bytes: &[u8; 40]) -> (Gid, Gid, u8, u32) {
    let gid = |at: usize| Gid(std::array::from_fn(|byte| bytes[at + byte]));
    let is_ipv4 = || ipv4::Header::parse(&bytes[IPV4_AT..], u16::MAX.into()).is_ok();
    if bytes[0] >> 4 == 6 && !is_ipv4() {
        let word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        return (gid(8), gid(24), (word >> 20) as u8, word & 0xf_ffff);
    }
    let mapped = |at: usize| {
        let mut gid = [0; 16];
        (gid[10], gid[11]) = (0xff, 0xff);
        gid[12..].copy_from_slice(&bytes[IPV4_AT + at..IPV4_AT + at + 4]);
        Gid(gid)
    };
    (mapped(12), mapped(16), bytes[IPV4_AT + 1], 0)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    domain: *mut IbvPd,
    completion: *mut IbvWc,
    header: *mut IbvGrh,
    port: u8,
) -> *mut IbvAh {
    let mut attributes = std::mem::MaybeUninit::uninit();
    // SAFETY: the program passes a domain, a completion and its GRH; the attributes are read where they were written.
    unsafe {
        let context = Domain::of(domain).context();
        if ibv_init_ah_from_wc(context, port, completion, header, attributes.as_mut_ptr()) != 0 {
            return std::ptr::null_mut();
        }
        ibv_create_ah(domain, attributes.as_mut_ptr())
    }
}

/// The hardware address of a path's next hop is the daemon's affair.
#[unsafe(no_mangle)]
extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut IbvContext,
    _attributes: *mut IbvAhAttr,
    _mac: *mut u8,
    _vlan: *mut u16,
) -> c_int {
    errno::minus_one(Err(libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_datagram_are_read_from_either_header() {
        let mut four = [0u8; 40];
        four[20] = 0x45;
        four[21] = 0x20;
        four[32..36].copy_from_slice(&[10, 0, 0, 1]);
        four[36..40].copy_from_slice(&[10, 0, 0, 2]);
        let mapped = |last| Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]);
        assert_eq!(ends(&four), (mapped(1), mapped(2), 0x20, 0));
        let between = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        ipv4::Header::new(ipv4::UDP, between, 100).emit(&mut four[20..]);
        for before in 0..=255 {
            four[..20].fill(before);
            assert_eq!(ends(&four), (mapped(1), mapped(2), 0, 0), "behind {before:#x}");
        }
        let mut six = [0u8; 40];
        six[..4].copy_from_slice(&0x6125_4321_u32.to_be_bytes());
        six[8..24].copy_from_slice(&[0xfe; 16]);
        six[24..40].copy_from_slice(&[0xfd; 16]);
        assert_eq!(ends(&six), (Gid([0xfe; 16]), Gid([0xfd; 16]), 0x12, 0x5_4321));
    }
}
