//! `rdma_getaddrinfo`: names by the C library's resolver.
use super::identifier::{SPACE_TCP, SPACE_UDP};
use crate::abi::RdmaAddrInfo;
use crate::errno;
use libc::{addrinfo, c_char, c_int, sockaddr, socklen_t};
use std::ptr::null_mut;
use verbs::QpKind;

/// `RAI_PASSIVE`, `RAI_NUMERICHOST`, `RAI_FAMILY`.
const PASSIVE: c_int = 1;
const NUMERIC: c_int = 2;
const FAMILY: c_int = 8;

/// A copy of an address that lives as long as the answer.
///
/// # Safety
/// There is an address of so many bytes, or null.
unsafe fn copied(address: *const sockaddr, len: socklen_t) -> *mut sockaddr {
    if address.is_null() || len == 0 {
        return null_mut();
    }
    // SAFETY: as the caller guarantees; freed by `rdma_freeaddrinfo`.
    unsafe {
        let copy = libc::malloc(len as usize).cast::<u8>();
        if !copy.is_null() {
            copy.copy_from_nonoverlapping(address.cast(), len as usize);
        }
        copy.cast()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const RdmaAddrInfo,
    into: *mut *mut RdmaAddrInfo,
) -> c_int {
    // SAFETY: the program passes hints, or null.
    let hints = unsafe { hints.as_ref() };
    let (flags, kind) = hints.map_or((0, 0), |hints| (hints.ai_flags, hints.ai_qp_type));
    let space = hints.map_or(0, |hints| hints.ai_port_space);
    let is_datagrams = kind == c_int::from(QpKind::Ud.code()) || space == SPACE_UDP;
    let of_kind = if is_datagrams { QpKind::Ud } else { QpKind::Rc };
    // SAFETY: zeros are a valid value.
    let mut info: RdmaAddrInfo = unsafe { std::mem::zeroed() };
    info.ai_flags = flags;
    info.ai_qp_type = if kind == 0 { of_kind.code().into() } else { kind };
    info.ai_port_space = if space == 0 { [SPACE_TCP, SPACE_UDP][usize::from(is_datagrams)] } else { space };
    // SAFETY: the program passes strings or null.
    let done = unsafe { fill(&mut info, node, service, hints) };
    if done != 0 {
        return done;
    }
    // SAFETY: the program passes a place for the answer.
    unsafe { *into = Box::into_raw(Box::new(info)) };
    0
}

/// # Safety
/// As for [`rdma_getaddrinfo`].
unsafe fn fill(
    info: &mut RdmaAddrInfo,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&RdmaAddrInfo>,
) -> c_int {
    let passive = info.ai_flags & PASSIVE != 0;
    // SAFETY: as the caller guarantees; the resolver's answer is freed below.
    unsafe {
        if node.is_null()
            && service.is_null()
            && hints.is_none_or(|hints| hints.ai_src_addr.is_null() && hints.ai_dst_addr.is_null())
        {
            return errno::minus_one(Err(libc::EINVAL));
        }
        if !node.is_null() || !service.is_null() {
            let mut wanted: addrinfo = std::mem::zeroed();
            let family = hints.map_or(0, |hints| hints.ai_family);
            wanted.ai_family = if info.ai_flags & FAMILY != 0 && family != 0 { family } else { libc::AF_INET };
            wanted.ai_flags = if passive { libc::AI_PASSIVE } else { 0 };
            wanted.ai_flags |= if info.ai_flags & NUMERIC != 0 { libc::AI_NUMERICHOST } else { 0 };
            wanted.ai_socktype = libc::SOCK_STREAM;
            let mut found = null_mut();
            let failed = libc::getaddrinfo(node, service, &wanted, &mut found);
            if failed != 0 {
                return failed;
            }
            let (copy, len) = (copied((*found).ai_addr, (*found).ai_addrlen), (*found).ai_addrlen);
            info.ai_family = (*found).ai_family;
            libc::freeaddrinfo(found);
            if passive {
                (info.ai_src_addr, info.ai_src_len) = (copy, len);
            } else {
                (info.ai_dst_addr, info.ai_dst_len) = (copy, len);
            }
        }
        let Some(hints) = hints else { return 0 };
        if info.ai_src_addr.is_null() {
            (info.ai_src_addr, info.ai_src_len) = (copied(hints.ai_src_addr, hints.ai_src_len), hints.ai_src_len);
        }
        if info.ai_dst_addr.is_null() {
            (info.ai_dst_addr, info.ai_dst_len) = (copied(hints.ai_dst_addr, hints.ai_dst_len), hints.ai_dst_len);
        }
        let named = [info.ai_dst_addr, info.ai_src_addr].into_iter().find(|address| !address.is_null());
        if let (0, Some(address)) = (info.ai_family, named) {
            info.ai_family = (*address).sa_family.into();
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_freeaddrinfo(info: *mut RdmaAddrInfo) {
    if info.is_null() {
        return;
    }
    // SAFETY: made by `rdma_getaddrinfo`, and its addresses by `malloc`.
    unsafe {
        let info = Box::from_raw(info);
        libc::free(info.ai_src_addr.cast());
        libc::free(info.ai_dst_addr.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm::plain;
    use std::net::{Ipv4Addr, SocketAddrV4};

    #[test]
    fn an_address_that_hints_name_has_its_family() {
        let mut peer = plain(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 7), 7));
        // SAFETY: zeros are a valid value.
        let mut hints: RdmaAddrInfo = unsafe { std::mem::zeroed() };
        hints.ai_dst_addr = (&raw mut peer).cast();
        hints.ai_dst_len = size_of_val(&peer) as socklen_t;
        let mut found = null_mut();
        // SAFETY: hints and a place; the answer is freed once.
        unsafe {
            assert_eq!(rdma_getaddrinfo(std::ptr::null(), std::ptr::null(), &raw const hints, &raw mut found), 0);
            assert_eq!(((*found).ai_family, (*found).ai_src_len), (libc::AF_INET, 0));
            rdma_freeaddrinfo(found);
        }
    }
}
