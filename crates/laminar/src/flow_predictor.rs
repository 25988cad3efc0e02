//! Flow predictor: a frame's flow, before the pipeline's lookup.
use engine::Frame;
use engine::stream::FourTuple;
use wire::{ethernet, ipv4, ipv6};

/// Where a frame without IP options has both ports, the peer's first.
const PORTS_AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
/// The same over IPv6, without extension headers.
const PORTS_AT_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;

/// Which flow a frame may be of, by its ports alone. Nothing but time depends on whether it is.
pub(crate) struct FlowPredictor {
    /// By place: one more than a flow's number, 0 for none. Flows whose ports are neighbours are neighbours here.
    flows: Vec<u32>,
}

impl FlowPredictor {
    /// For so many flows.
    pub(crate) fn new(flows: u32) -> FlowPredictor {
        FlowPredictor { flows: vec![0; 2 * flows.next_power_of_two() as usize] }
    }

    /// A flow has this address.
    pub(crate) fn learn(&mut self, tuple: &FourTuple, flow: u32) {
        let place = self.place(u32::from(tuple.remote_port) << 16 | u32::from(tuple.local_port));
        self.flows[place] = flow + 1;
    }

    /// A number beyond all flows' where none is known.
    #[inline(always)]
    pub(crate) fn of(&self, frame: &Frame) -> u32 {
        let bytes = frame.bytes();
        let at = if bytes.get(12) == Some(&0x86) { PORTS_AT_V6 } else { PORTS_AT };
        let ports = bytes.get(at..at + 4).and_then(<[u8]>::first_chunk);
        ports.map_or(0, |ports| self.flows[self.place(u32::from_be_bytes(*ports))]).wrapping_sub(1)
    }

    #[inline(always)]
    fn place(&self, ports: u32) -> usize {
        (ports >> 16 ^ ports) as usize & (self.flows.len() - 1)
    }
}
