//! Flow steering for queue pairs of raw packets: programs' rules on frames that no transport of the host claims.
use crate::failure::Failure;
use crate::user_context::ProgramId;
use verbs::flow::{Field, FlowRule, Frames, Layer, MOST_FIELD_BYTES, MOST_FIELDS};
use verbs::{Number, QpNumber};
use wire::{Mac, ethernet, ipv4};

/// What a rule is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// The program's number of it.
    Rule(Number),
    /// A queue pair's membership in the group of a hardware address (`ibv_attach_mcast`).
    Group(QpNumber, Mac),
}

struct Entry {
    id: ProgramId,
    name: Name,
    rule: FlowRule,
}

/// All rules of a device, in their order.
#[derive(Default)]
pub(crate) struct Flows(Vec<Entry>);

impl Flows {
    /// Adds a rule, behind those of its priority.
    ///
    /// # Errors
    /// EINVAL: it has more fields than a rule may have, or one that is none.
    pub(crate) fn add(&mut self, id: ProgramId, name: Name, rule: FlowRule) -> Result<(), Failure> {
        let is_field = |field: &Field| field.value.len() == field.mask.len() && field.value.len() <= MOST_FIELD_BYTES;
        if rule.fields.len() > MOST_FIELDS || !rule.fields.iter().all(is_field) {
            return Err(Failure::invalid(format!(
                "a rule has {MOST_FIELDS} fields of {MOST_FIELD_BYTES} bytes at most, and masks as long as they are"
            )));
        }
        let at = self.0.partition_point(|entry| entry.rule.priority <= rule.priority);
        self.0.insert(at, Entry { id, name, rule });
        Ok(())
    }

    /// Removes a rule; reports whether there was one.
    pub(crate) fn remove(&mut self, id: ProgramId, name: Name) -> bool {
        let before = self.0.len();
        self.0.retain(|entry| (entry.id, entry.name) != (id, name));
        self.0.len() < before
    }

    /// A program is gone.
    pub(crate) fn leave(&mut self, id: ProgramId) {
        self.0.retain(|entry| entry.id != id);
    }

    /// Memberships of a program in groups of hardware addresses; those of one queue pair, where it is named.
    pub(crate) fn memberships(&self, id: ProgramId, of: Option<QpNumber>) -> usize {
        let is_one = |entry: &&Entry| {
            let Name::Group(qp, _) = entry.name else { return false };
            entry.id == id && of.is_none_or(|of| of == qp)
        };
        self.0.iter().filter(is_one).count()
    }

    /// There is a rule.
    pub(crate) fn are_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Receivers of a frame: of one for a station, the first whose rule is for it; of one for a group, each.
    pub(crate) fn takers(&self, bytes: &[u8]) -> Vec<(ProgramId, QpNumber)> {
        let Ok(header) = ethernet::Header::parse(bytes) else { return Vec::new() };
        let (is_group, headers) = (header.dst.is_group(), Starts::of(bytes));
        let matching = |rule: &FlowRule| {
            rule.frames == Frames::Matching && rule.fields.iter().all(|field| headers.has(bytes, field))
        };
        let catch_all =
            |rule: &FlowRule| rule.frames == Frames::Rest || is_group && rule.frames == Frames::MulticastRest;
        let mut takers = self.which(matching);
        if takers.is_empty() {
            takers = self.which(catch_all);
        }
        takers.truncate(if is_group { usize::MAX } else { 1 });
        takers
    }

    /// The queue pairs of these rules, each once.
    fn which(&self, is_for: impl Fn(&FlowRule) -> bool) -> Vec<(ProgramId, QpNumber)> {
        let mut found = Vec::new();
        for entry in self.0.iter().filter(|entry| is_for(&entry.rule)) {
            let taker = (entry.id, entry.rule.qp);
            if !found.contains(&taker) {
                found.push(taker);
            }
        }
        found
    }
}

/// The rule of a group of a hardware address.
pub(crate) fn of_group(qp: QpNumber, group: Mac) -> FlowRule {
    let field = Field { layer: Layer::Ethernet, at: 0, value: group.0.to_vec(), mask: vec![0xff; 6] };
    FlowRule { qp, frames: Frames::Matching, priority: 0, fields: vec![field] }
}

/// Where the headers of a frame begin.
#[derive(Default)]
struct Starts {
    ipv4: Option<usize>,
    ipv6: Option<usize>,
    tcp: Option<usize>,
    udp: Option<usize>,
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_HEADER_LEN: usize = 40;

impl Starts {
    /// Headers behind extensions of IPv6, and in fragments beside the first, are not found.
    fn of(bytes: &[u8]) -> Starts {
        let ip = ethernet::HEADER_LEN;
        let (inner, protocol, starts) = match bytes.get(ip - 2..ip) {
            Some(kind) if kind == IPV4 && bytes.len() >= ip + ipv4::HEADER_LEN => {
                let is_first = u16::from_be_bytes([bytes[ip + 6], bytes[ip + 7]]) & 0x1fff == 0;
                let inner = ip + usize::from(bytes[ip] & 0x0f) * 4;
                (inner, Some(bytes[ip + 9]).filter(|_| is_first), Starts { ipv4: Some(ip), ..Starts::default() })
            }
            Some(kind) if kind == IPV6 && bytes.len() >= ip + IPV6_HEADER_LEN => {
                (ip + IPV6_HEADER_LEN, Some(bytes[ip + 6]), Starts { ipv6: Some(ip), ..Starts::default() })
            }
            _ => return Starts::default(),
        };
        match protocol {
            Some(ipv4::TCP) => Starts { tcp: Some(inner), ..starts },
            Some(ipv4::UDP) => Starts { udp: Some(inner), ..starts },
            _ => starts,
        }
    }

    fn has(&self, bytes: &[u8], field: &Field) -> bool {
        let start = match field.layer {
            Layer::Ethernet => Some(0),
            Layer::Ipv4 => self.ipv4,
            Layer::Ipv6 => self.ipv6,
            Layer::Tcp => self.tcp,
            Layer::Udp => self.udp,
        };
        let there = start.and_then(|start| bytes.get(start + usize::from(field.at)..)?.get(..field.value.len()));
        let agrees = |(byte, (value, mask)): (&u8, (&u8, &u8))| (byte ^ value) & mask == 0;
        there.is_some_and(|there| there.iter().zip(field.value.iter().zip(&field.mask)).all(agrees))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProgramId = ProgramId(1);
    const STATION: Mac = Mac([2, 0, 0, 0, 0, 1]);

    /// A UDP datagram from port 7 to this one, in IPv4 with so many words of header.
    fn datagram(dst: Mac, port: u16, words: u8) -> Vec<u8> {
        let mut bytes = vec![0; 80];
        bytes[..6].copy_from_slice(&dst.0);
        bytes[12..14].copy_from_slice(&IPV4);
        (bytes[14], bytes[23]) = (0x40 | words, ipv4::UDP);
        let udp = 14 + usize::from(words) * 4;
        bytes[udp..udp + 4].copy_from_slice(&[0, 7, (port >> 8) as u8, port as u8]);
        bytes
    }

    fn rule(qp: QpNumber, frames: Frames, fields: &[(Layer, u8, &[u8])]) -> FlowRule {
        let field = |(layer, at, value): &(Layer, u8, &[u8])| Field {
            layer: *layer,
            at: *at,
            value: value.to_vec(),
            mask: vec![0xff; value.len()],
        };
        FlowRule { qp, frames, priority: 0, fields: fields.iter().map(field).collect() }
    }

    #[test]
    fn a_unicast_frame_has_one_taker_by_least_priority() {
        let mut flows = Flows::default();
        let port = rule(7, Frames::Matching, &[(Layer::Udp, 2, &[0x12, 0x34])]);
        flows.add(ONE, Name::Rule(0), FlowRule { priority: 5, ..port.clone() }).unwrap();
        flows.add(ONE, Name::Rule(1), FlowRule { qp: 8, priority: 5, ..port.clone() }).unwrap();
        for words in [5, 6, 15] {
            assert_eq!(flows.takers(&datagram(STATION, 0x1234, words)), [(ONE, 7)]);
            assert_eq!(flows.takers(&datagram(STATION, 0x1235, words)), []);
        }
        flows.add(ProgramId(2), Name::Rule(0), FlowRule { qp: 9, priority: 4, ..port }).unwrap();
        assert_eq!(flows.takers(&datagram(STATION, 0x1234, 5)), [(ProgramId(2), 9)]);
        flows.leave(ProgramId(2));
        assert!(flows.remove(ONE, Name::Rule(0)) && !flows.remove(ONE, Name::Rule(0)));
        assert_eq!(flows.takers(&datagram(STATION, 0x1234, 5)), [(ONE, 8)]);
    }

    #[test]
    fn unmatched_frames_go_to_the_default_rules() {
        let (mut flows, group) = (Flows::default(), Mac([1, 0, 0x5e, 0, 0, 9]));
        flows.add(ONE, Name::Rule(0), rule(5, Frames::MulticastRest, &[])).unwrap();
        assert_eq!(flows.takers(&datagram(STATION, 1, 5)), []);
        flows.add(ONE, Name::Rule(1), rule(6, Frames::Rest, &[])).unwrap();
        assert_eq!(flows.takers(&datagram(STATION, 1, 5)), [(ONE, 6)]);
        assert_eq!(flows.takers(&datagram(group, 1, 5)), [(ONE, 5), (ONE, 6)]);
        for qp in [7, 8] {
            flows.add(ONE, Name::Group(qp, group), of_group(qp, group)).unwrap();
        }
        assert_eq!(flows.takers(&datagram(group, 1, 5)), [(ONE, 7), (ONE, 8)]);
        assert_eq!((flows.memberships(ONE, None), flows.memberships(ONE, Some(7))), (2, 1));
    }

    #[test]
    fn short_frames_agree_with_nothing() {
        let mut flows = Flows::default();
        flows.add(ONE, Name::Rule(0), rule(5, Frames::Matching, &[(Layer::Udp, 2, &[0, 1])])).unwrap();
        flows.add(ONE, Name::Rule(1), rule(6, Frames::Matching, &[(Layer::Ipv6, 0, &[])])).unwrap();
        let mut bytes = datagram(STATION, 1, 5);
        bytes[20] = 1;
        assert_eq!(flows.takers(&bytes), [], "a fragment beside the first");
        bytes[20] = 0;
        assert_eq!(flows.takers(&bytes), [(ONE, 5)]);
        for len in 0..38 {
            assert_eq!(flows.takers(&bytes[..len]), [], "{len} bytes");
        }
        bytes[12..14].copy_from_slice(&IPV6);
        assert_eq!(flows.takers(&bytes), [(ONE, 6)]);
        let long = Field { layer: Layer::Ethernet, at: 255, value: vec![0; 17], mask: vec![0; 17] };
        let long = FlowRule { fields: vec![long], ..rule(5, Frames::Matching, &[]) };
        assert_eq!(flows.add(ONE, Name::Rule(2), long).unwrap_err().errno, libc::EINVAL);
    }
}
