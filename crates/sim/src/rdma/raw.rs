//! Frames of raw packets, and the rules by which they come to their queue pair. Each frame contains whose it is and
//! which message of its sender's: nothing else does, and the network may lose it, repeat it, or change its place.
use crate::plan::Plan;
use crate::random::Stream;
use ::verbs::QpNumber;
use ::verbs::flow::{Field, FlowRule, Frames, Layer};
use wire::{EtherType, ethernet, ip, ipv4};

const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const NUMBER_LEN: usize = 8;
const IPV6: u16 = 0x86dd;
/// For experiments of one's own (IEEE 802, table of EtherTypes).
const LOCAL: u16 = 0x88b5;
/// Where a queue pair's tag stands in a UDP header: the destination port.
const PORT_AT: usize = 2;

/// What stands around a message. Damage strikes IP packets only, so those are for networks without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Ethernet,
    Ipv4,
    Ipv6,
}

/// The way to a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    form: Form,
    /// No other queue pair of the scenario has it.
    tag: u16,
    /// Hosts: the sender, the receiver.
    hosts: [usize; 2],
}

impl Lane {
    /// The way to queue pair `qp` of a side.
    pub(crate) fn new(plan: &Plan, link: usize, side: usize, qp: usize) -> Lane {
        let forms = [Form::Ethernet, Form::Ipv6, Form::Ipv4];
        let forms = if plan.fabric.corrupt > 0.0 { &forms[..1] } else { &forms[..] };
        let hosts = plan.links[link].hosts;
        let tag = 0x4000 | (link << 8 | side << 7 | qp) as u16;
        Lane { form: forms[(link + side + qp) % forms.len()], tag, hosts: [hosts[1 - side], hosts[side]] }
    }

    /// The rule for its frames, and no others. The last byte of the sender's address does not count.
    pub(crate) fn rule(&self, qp: QpNumber) -> FlowRule {
        let exact = |layer, at: usize, value: &[u8]| {
            let (at, value, mask) = (at as u8, value.to_vec(), vec![0xff; value.len()]);
            Field { layer, at, value, mask }
        };
        let tag = self.tag.to_be_bytes();
        let mut sender = exact(Layer::Ethernet, 6, &Plan::mac(self.hosts[0]).0);
        (sender.value[5], sender.mask[5]) = (0xaa, 0);
        let mut fields = match self.form {
            Form::Ethernet => {
                let kind = exact(Layer::Ethernet, 12, &LOCAL.to_be_bytes());
                vec![kind, exact(Layer::Ethernet, ethernet::HEADER_LEN, &tag)]
            }
            Form::Ipv4 => vec![exact(Layer::Ipv4, 9, &[ipv4::UDP]), exact(Layer::Udp, PORT_AT, &tag)],
            Form::Ipv6 => vec![exact(Layer::Ipv6, 0, &[0x60]), exact(Layer::Udp, PORT_AT, &tag)],
        };
        fields.push(sender);
        FlowRule { qp, frames: Frames::Matching, priority: self.tag & 3, fields }
    }

    /// A message as a frame of `len` bytes.
    pub(crate) fn frame(&self, number: usize, stream: Stream, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let [src, dst] = self.hosts.map(Plan::mac);
        let kind = match self.form {
            Form::Ethernet => EtherType::from(LOCAL),
            Form::Ipv4 => EtherType::Ipv4,
            Form::Ipv6 => EtherType::from(IPV6),
        };
        ethernet::Header { dst, src, ethertype: kind }.emit(&mut bytes);
        let at = ethernet::HEADER_LEN;
        let remaining = (len - at) as u16;
        let udp = match self.form {
            Form::Ethernet => {
                bytes[at..at + 2].copy_from_slice(&self.tag.to_be_bytes());
                None
            }
            Form::Ipv4 => {
                let [from, to] = self.hosts.map(Plan::ipv4);
                let payload = remaining - ipv4::HEADER_LEN as u16;
                ipv4::Header::new(ipv4::UDP, (from, to), payload).emit(&mut bytes[at..]);
                Some(at + ipv4::HEADER_LEN)
            }
            Form::Ipv6 => {
                let [src, dst] = self.hosts.map(Plan::ipv6);
                ip::emit(ipv4::UDP, ip::Ends { src, dst }, 64, &mut bytes[at..]).map(|len| at + len)
            }
        };
        if let Some(udp) = udp {
            bytes[udp + PORT_AT..udp + PORT_AT + 2].copy_from_slice(&self.tag.to_be_bytes());
            let udp_len = (len - udp) as u16;
            bytes[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
        }
        let (at, after) = (self.number_at(), self.number_at() + NUMBER_LEN);
        bytes[at..after].copy_from_slice(&(number as u64).to_be_bytes());
        stream.fill(0, &mut bytes[after..]);
        bytes
    }

    /// Which message a frame has.
    pub(crate) fn number(&self, frame: &[u8]) -> Option<usize> {
        let number = frame.get(self.number_at()..)?.first_chunk::<NUMBER_LEN>()?;
        usize::try_from(u64::from_be_bytes(*number)).ok()
    }

    fn number_at(&self) -> usize {
        let inner = match self.form {
            Form::Ethernet => 2,
            Form::Ipv4 => ipv4::HEADER_LEN + UDP_LEN,
            Form::Ipv6 => IPV6_LEN + UDP_LEN,
        };
        ethernet::HEADER_LEN + inner
    }
}
