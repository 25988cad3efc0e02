//! The path of a frame through a network with several: by a hash of addresses, protocol and ports, as switches choose
//! among paths of equal cost (RFC 2992). So a flow's frames stay in order, and flows spread.
use crate::Frame;
use wire::{EtherType, ethernet, ip};

/// Which of `paths` a frame takes. Whatever is not IP takes the first.
pub(super) fn path_of(frame: &Frame, paths: usize) -> usize {
    if paths < 2 {
        return 0;
    }
    let bytes = frame.bytes();
    let Some((at, ethertype)) = ip::packet_at(bytes) else { return 0 };
    let packet = &bytes[at..];
    let Ok((header, ip_len)) = ip::Header::parse(ethertype, packet, frame.len() - ethernet::HEADER_LEN) else {
        return 0;
    };
    let (addresses, ports) = match ethertype {
        EtherType::Ipv6 => (8..40, ip_len..ip_len + 4),
        _ => (12..20, ip_len..ip_len + 4),
    };
    let all = [packet.get(addresses), packet.get(ports)].into_iter().flatten().flatten();
    let hash = all.fold(u64::from(header.protocol), |hash, byte| {
        // FNV-1a, 64 bits.
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (mixed(hash) % paths as u64) as usize
}

/// Each bit depends on all bits of the hash, whose low ones depend on low ones only (the end of MurmurHash3).
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FramePool;
    use wire::roce::{Bth, Headers, Opcode, Path, Psn, pad, sprayed_port};
    use wire::{Ipv4Addr, Mac};

    fn frame(source_port: u16) -> Box<Frame> {
        let path = Path {
            local_mac: Mac([2, 0, 0, 0, 0, 1]),
            remote_mac: Mac([2, 0, 0, 0, 0, 2]),
            local: Ipv4Addr::new(10, 0, 0, 1),
            remote: Ipv4Addr::new(10, 0, 0, 2),
            hop_limit: 64,
            traffic_class: 2,
            source_port,
        };
        let mut frame = FramePool::new(1).small();
        path.emit(&Bth::new(Opcode::ACKNOWLEDGE, 3, Psn::new(9)), &Headers::NONE, 0, frame.bytes_vec());
        pad(frame.bytes_vec());
        frame
    }

    #[test]
    fn flows_spread_and_each_has_one_path() {
        for paths in [2, 3, 8] {
            let mut flows = vec![0; paths];
            for port in 0..1000 {
                let path = path_of(&frame(0xc000 + port), paths);
                assert_eq!(path, path_of(&frame(0xc000 + port), paths));
                flows[path] += 1;
            }
            let fair = 1000 / paths;
            assert!(flows.iter().all(|count| (fair * 3 / 4..fair * 5 / 4).contains(count)), "{flows:?}");
        }
        assert_eq!(path_of(&frame(1), 1), 0);
        assert_eq!(path_of(&FramePool::new(1).small(), 4), 0, "not IP");
    }

    /// The ports of one queue pair that sprays, which follow each other.
    #[test]
    fn ports_in_a_row_spread() {
        for own in (0xc000..0xd000).step_by(64) {
            let first = (0..16).filter(|psn| path_of(&frame(sprayed_port(own, 4, Psn::new(*psn))), 2) == 0).count();
            assert!((2..=14).contains(&first), "{own:x}: {first} of 16");
        }
    }
}
