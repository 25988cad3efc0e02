//! Rules for frames of raw packets (`ibv_create_flow`): the program's specifications as fields of headers.
use crate::abi::{IbvFlow, IbvFlowAttr, IbvQp};
use crate::attachment::Attachment;
use crate::errno::{self, Result};
use crate::queue_pair::Qp;
use libc::c_int;
use std::sync::Arc;
use verbs::Number;
use verbs::control::Request;
use verbs::flow::{Field, FlowRule, Frames, Layer};

/// `enum ibv_flow_attr_type`.
const MATCHING: c_int = 0;
const REST: c_int = 1;
const MULTICAST_REST: c_int = 2;

/// `enum ibv_flow_spec_type`, and bytes of a specification's type and size.
const ETHERNET: u32 = 0x20;
const IPV4: u32 = 0x30;
const IPV6: u32 = 0x31;
const IPV4_MORE: u32 = 0x32;
const TCP: u32 = 0x40;
const UDP: u32 = 0x41;
const SPEC_HEAD: usize = 6;

/// A member of a specification: its byte among the values, its bytes, and its byte in the header.
type Member = (usize, usize, u8);

/// What a specification is of: the header, where its values and masks begin, and their members.
struct Spec {
    layer: Layer,
    values_at: usize,
    masks_at: usize,
    members: &'static [Member],
}

/// Tags of VLANs are not offered: the host receives none.
const OF_ETHERNET: Spec =
    Spec { layer: Layer::Ethernet, values_at: 6, masks_at: 22, members: &[(0, 6, 0), (6, 6, 6), (12, 2, 12)] };
const OF_IPV4: Spec = Spec { layer: Layer::Ipv4, values_at: 8, masks_at: 16, members: &[(0, 4, 12), (4, 4, 16)] };
/// Protocol, type of service and time to live as well; flags are bits of a byte, and are checked below.
const OF_IPV4_MORE: Spec = Spec {
    layer: Layer::Ipv4,
    values_at: 8,
    masks_at: 20,
    members: &[(0, 4, 12), (4, 4, 16), (8, 1, 9), (9, 1, 1), (10, 1, 8)],
};
const OF_IPV6: Spec = Spec {
    layer: Layer::Ipv6,
    values_at: 8,
    masks_at: 48,
    members: &[(0, 16, 8), (16, 16, 24), (36, 1, 6), (38, 1, 7)],
};
const fn of_ports(layer: Layer) -> Spec {
    Spec { layer, values_at: 6, masks_at: 10, members: &[(0, 2, 2), (2, 2, 0)] }
}
/// Members that no rule here matches: where their mask has bits, the specification is refused. The VLAN tag, the flags
/// of IPv4; of IPv6 the flow label and the traffic class, whose bits cross bytes.
const NOT_OFFERED: [(u32, usize, usize); 4] = [(ETHERNET, 36, 2), (IPV4_MORE, 31, 1), (IPV6, 80, 4), (IPV6, 85, 1)];

/// A rule.
#[repr(C)]
struct Flow {
    public: IbvFlow,
    attachment: Arc<Attachment>,
    number: Number,
}

/// `ibv_create_flow`.
pub(crate) unsafe extern "C" fn create_flow(qp: *mut IbvQp, asked: *mut IbvFlowAttr) -> *mut IbvFlow {
    // SAFETY: the program passes a queue pair of its own, and attributes with what follows them.
    errno::pointer(unsafe { create(qp, &*asked) })
}

/// # Safety
/// The queue pair is the program's, and its specifications follow the attributes.
unsafe fn create(qp: *mut IbvQp, asked: &IbvFlowAttr) -> Result<*mut IbvFlow> {
    // SAFETY: as the caller guarantees.
    let (of, context) = unsafe { (Qp::of(qp), (*qp).context) };
    let frames = match asked.kind {
        MATCHING => Frames::Matching,
        REST => Frames::Rest,
        MULTICAST_REST => Frames::MulticastRest,
        // A sniffer: `opentoe pcap` shows a host's frames.
        _ => return Err(libc::EOPNOTSUPP),
    };
    if asked.flags != 0 || asked.comp_mask != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let head = size_of::<IbvFlowAttr>();
    let len = usize::from(asked.size).checked_sub(head).ok_or(libc::EINVAL);
    // Programs set the size only where specifications follow.
    let len = if asked.num_of_specs == 0 { 0 } else { len? };
    // SAFETY: as the caller guarantees: the size counts them.
    let specs = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(asked).add(1).cast::<u8>(), len) };
    let fields = fields(specs, asked.num_of_specs)?;
    let rule = FlowRule { qp: of.number, frames, priority: asked.priority, fields };
    let (number, _) = of.attachment.number(&Request::CreateFlow(rule))?;
    let public = IbvFlow { comp_mask: 0, context, handle: number };
    Ok(Box::into_raw(Box::new(Flow { public, attachment: Arc::clone(&of.attachment), number })).cast())
}

/// `ibv_destroy_flow`.
pub(crate) unsafe extern "C" fn destroy_flow(flow: *mut IbvFlow) -> c_int {
    // SAFETY: `create_flow` gave it.
    let of = unsafe { &*flow.cast::<Flow>() };
    errno::number(of.attachment.done(&Request::DestroyFlow(of.number)).map(|()| {
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(flow.cast::<Flow>()) });
    }))
}

/// The fields of so many specifications.
fn fields(mut specs: &[u8], count: u8) -> Result<Vec<Field>> {
    let mut fields = Vec::new();
    for _ in 0..count {
        let (head, size) = head(specs).ok_or(libc::EINVAL)?;
        let (spec, remaining) = specs.split_at_checked(size).ok_or(libc::EINVAL)?;
        specs = remaining;
        let of = match head {
            ETHERNET => OF_ETHERNET,
            IPV4 => OF_IPV4,
            IPV4_MORE => OF_IPV4_MORE,
            IPV6 => OF_IPV6,
            TCP => of_ports(Layer::Tcp),
            UDP => of_ports(Layer::Udp),
            _ => return Err(libc::EOPNOTSUPP),
        };
        let counts =
            |at: usize, len: usize| spec.get(at..at + len).is_none_or(|mask| mask.iter().any(|byte| *byte != 0));
        if NOT_OFFERED.iter().any(|(kind, at, len)| *kind == head && counts(*at, *len)) {
            return Err(libc::EOPNOTSUPP);
        }
        // The header has to be there, also where no bit counts.
        fields.push(Field { layer: of.layer, at: 0, value: Vec::new(), mask: Vec::new() });
        for (at, len, place) in of.members {
            let bytes = |from: usize| spec.get(from + at..from + at + len).map(<[u8]>::to_vec).ok_or(libc::EINVAL);
            let (value, mask) = (bytes(of.values_at)?, bytes(of.masks_at)?);
            if mask.iter().any(|byte| *byte != 0) {
                fields.push(Field { layer: of.layer, at: *place, value, mask });
            }
        }
    }
    Ok(fields)
}

/// The type and the size of a specification.
fn head(specs: &[u8]) -> Option<(u32, usize)> {
    let (kind, size) = (specs.first_chunk::<4>()?, specs.get(4..SPEC_HEAD)?);
    let size = usize::from(u16::from_ne_bytes([size[0], size[1]]));
    (size >= SPEC_HEAD).then_some((u32::from_ne_bytes(*kind), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: u32, size: usize, set: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; size];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..6].copy_from_slice(&(size as u16).to_ne_bytes());
        for (at, value) in set {
            bytes[*at..at + value.len()].copy_from_slice(value);
        }
        bytes
    }

    #[test]
    fn specifications_become_fields_of_their_headers() {
        // As perftest makes them: the station, addresses, ports.
        let station = spec(ETHERNET, 40, &[(6, &[2, 0, 0, 0, 0, 9]), (22, &[0xff; 6])]);
        let addresses = spec(IPV4_MORE, 32, &[(8, &[10, 0, 0, 1]), (20, &[0xff; 4])]);
        let ports = spec(UDP, 16, &[(6, &[0x12, 0x34]), (10, &[0xff; 2])]);
        let specs = [station, addresses, ports].concat();
        let fields = fields(&specs, 3).unwrap();
        let masked: Vec<_> = fields.iter().filter(|field| !field.mask.is_empty()).collect();
        let found = |at: usize| (masked[at].layer, masked[at].at, masked[at].value.as_slice());
        assert_eq!((fields.len(), masked.len()), (6, 3));
        assert_eq!(found(0), (Layer::Ethernet, 0, [2, 0, 0, 0, 0, 9].as_slice()));
        assert_eq!(found(1), (Layer::Ipv4, 12, [10, 0, 0, 1].as_slice()));
        assert_eq!(found(2), (Layer::Udp, 2, [0x12, 0x34].as_slice()));
    }

    #[test]
    fn what_is_not_offered_is_refused_and_what_is_cut_is_invalid() {
        let vlan = spec(ETHERNET, 40, &[(36, &[0x0f, 0xff])]);
        assert_eq!(fields(&vlan, 1), Err(libc::EOPNOTSUPP));
        assert_eq!(fields(&spec(0x50, 16, &[]), 1), Err(libc::EOPNOTSUPP));
        let whole = spec(IPV4, 24, &[]);
        assert!(fields(&whole, 1).is_ok());
        for len in 0..24 {
            assert_eq!(fields(&whole[..len], 1), Err(libc::EINVAL), "{len} bytes");
        }
        assert_eq!(fields(&spec(UDP, 8, &[]), 1), Err(libc::EINVAL));
        assert_eq!(fields(&[0; 8], 1), Err(libc::EINVAL), "of no bytes");
        assert_eq!(fields(&whole, 2), Err(libc::EINVAL));
    }
}
