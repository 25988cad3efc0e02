//! The interpreter: slow and simple, the reference for everything faster. A [`Machine`] holds a program with its
//! registers and tables; [`Machine::ingress`] and [`Machine::egress`] are one pass each. [`Machine::process`] runs
//! batches through both, with an unlimited traffic manager between.
//!
//! Fields are zero at the start of a pass. An index beyond a register's end reads zero and writes nothing. Multicast
//! groups are not replicated.
mod bits;
mod entries;
mod exec;
mod hash;
mod machine;
mod packet;
mod tables;

pub use crate::control::{ControlError, EntryKey};
pub(crate) use hash::hash;
pub use machine::{Machine, Session};
pub(crate) use packet::sum;

use crate::ir::{Gress, Program};
use crate::meter::Meters;
use bits::BitWriter;
use entries::TableState;
use packet::Outcome;
use std::collections::BTreeMap;

/// A packet between ingress and egress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Egress port.
    pub port: u16,
    /// Queue.
    pub queue: u8,
    /// Leaves as it is, without egress processing.
    pub bypass: bool,
    /// The packet, with what ingress or the mirror put in front.
    pub data: Vec<u8>,
}

/// A packet that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Port.
    pub port: u16,
    /// Frame.
    pub data: Vec<u8>,
}

/// Result of ingress for a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IngressOut {
    /// To the traffic manager; none was dropped.
    pub queued: Option<Queued>,
    /// Copies by the mirror.
    pub mirrored: Vec<Queued>,
    /// To the control plane: name of the digest, and its fields.
    pub digests: Vec<(String, Vec<u128>)>,
    /// Again through ingress: the fields in front of the packet.
    pub resubmit: Option<Vec<u8>>,
}

/// Result of egress for a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressOut {
    /// The frame; none was dropped.
    pub sent: Option<Sent>,
    /// Copies by the mirror, which go through egress themselves.
    pub mirrored: Vec<Queued>,
}

/// Everything that came out of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchOut {
    /// Frames in the order in which they left.
    pub sent: Vec<Sent>,
    /// Digests.
    pub digests: Vec<(String, Vec<u128>)>,
}

/// Passes of one packet's copies through egress at most.
const MAX_COPIES: usize = 64;

impl Machine {
    /// Registers at their initial values, tables with their constant entries.
    pub fn new(program: Program) -> Machine {
        let registers = program.registers.iter().map(|r| r.initial.repeat(r.size as usize)).collect();
        let tables = program.tables.iter().map(TableState::new).collect();
        let counters = program.counters.iter().map(|c| vec![0; c.size as usize]).collect();
        Machine {
            registers,
            tables,
            counters,
            meters: program.meters.iter().map(|m| Meters::new(m.size, m.bytes)).collect(),
            length: 0,
            sessions: BTreeMap::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            now_ns: 0,
            program,
        }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The time that packets see, nanoseconds.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Sets the destination of a session's copies.
    pub fn set_session(&mut self, id: u8, session: Session) {
        self.sessions.insert(id, session);
    }

    /// One packet through ingress.
    pub fn ingress(&mut self, port: u16, frame: &[u8]) -> IngressOut {
        let front = self.ingress_metadata(port);
        let Some(out) = self.pass(Gress::Ingress, &front, frame) else { return IngressOut::default() };
        let get = |name: &str| out.intrinsic(&self.program, name).unwrap_or(0);
        let tm = |name: &str| get(&format!("ingress_intrinsic_metadata_for_tm_t.{name}"));
        let drop = get("ingress_intrinsic_metadata_for_deparser_t.drop_ctl");
        let mirrored = if drop & 4 == 0 { self.mirror(&out, frame) } else { Vec::new() };
        let queued = (drop & 1 == 0 && out.port_set && out.resubmit.is_none()).then(|| Queued {
            port: tm("ucast_egress_port") as u16,
            queue: tm("qid") as u8,
            bypass: tm("bypass_egress") == 1,
            data: out.data.clone(),
        });
        IngressOut { queued, mirrored, digests: out.digests, resubmit: out.resubmit }
    }

    /// One packet through egress.
    pub fn egress(&mut self, packet: &Queued) -> EgressOut {
        if packet.bypass {
            let sent = Some(Sent { port: packet.port, data: packet.data.clone() });
            return EgressOut { sent, mirrored: Vec::new() };
        }
        let front = self.egress_metadata(packet);
        let Some(out) = self.pass(Gress::Egress, &front, &packet.data) else { return EgressOut::default() };
        let drop = out.intrinsic(&self.program, "egress_intrinsic_metadata_for_deparser_t.drop_ctl").unwrap_or(0);
        let mirrored = if drop & 4 == 0 { self.mirror(&out, &out.data) } else { Vec::new() };
        let sent = (drop & 1 == 0).then(|| Sent { port: packet.port, data: out.data.clone() });
        EgressOut { sent, mirrored }
    }

    /// Packets through both halves in order; each packet's copies follow it at once.
    pub fn process(&mut self, batch: &[(u16, &[u8])]) -> BatchOut {
        let mut out = BatchOut::default();
        for (port, frame) in batch {
            let ingress = self.ingress(*port, frame);
            out.digests.extend(ingress.digests);
            let mut queue: std::collections::VecDeque<Queued> = ingress.queued.into_iter().collect();
            queue.extend(ingress.mirrored);
            let mut passes = 0;
            while let Some(packet) = queue.pop_front() {
                let egress = self.egress(&packet);
                out.sent.extend(egress.sent);
                passes += 1;
                if passes < MAX_COPIES {
                    queue.extend(egress.mirrored);
                }
            }
        }
        out
    }

    fn ingress_metadata(&self, port: u16) -> Vec<u8> {
        let values = [("ingress_port", port as u128), ("ingress_mac_tstamp", self.now_ns as u128)];
        let mut front = self.intrinsic_bytes(Gress::Ingress, "ingress_intrinsic_metadata_t", &values);
        // Port metadata: set by the control plane, here always zero.
        front.resize(front.len() + 24, 0);
        front
    }

    fn egress_metadata(&self, packet: &Queued) -> Vec<u8> {
        let values = [
            ("egress_port", packet.port as u128),
            ("egress_qid", packet.queue as u128),
            ("pkt_length", packet.data.len() as u128),
            ("enq_tstamp", self.now_ns as u128),
        ];
        self.intrinsic_bytes(Gress::Egress, "egress_intrinsic_metadata_t", &values)
    }

    /// The bytes that the architecture puts in front of a packet.
    fn intrinsic_bytes(&self, gress: Gress, type_name: &str, values: &[(&str, u128)]) -> Vec<u8> {
        let program = &self.program;
        let Some(header) = program.headers.iter().find(|h| h.gress == gress && h.type_name == type_name) else {
            return Vec::new();
        };
        let mut bits = BitWriter::default();
        for id in &header.fields {
            let field = program.field(*id);
            let name = &field.name[header.name.len() + 1..];
            let value = values.iter().find(|(n, _)| *n == name).map_or(0, |v| v.1);
            bits.put(value, field.ty.width());
        }
        bits.bytes()
    }

    fn mirror(&self, out: &Outcome, original: &[u8]) -> Vec<Queued> {
        let mut copies = Vec::new();
        for (session, front) in &out.mirrors {
            let Some(session) = self.sessions.get(session) else { continue };
            let prefix = format!("{}_intrinsic_metadata_for_deparser_t.mirror_", out.gress.name());
            let get = |name: &str| out.intrinsic(&self.program, &format!("{prefix}{name}")).unwrap_or(0);
            let port = match get("egress_port") {
                0 => session.port,
                port => port as u16,
            };
            let mut data = front.clone();
            data.extend_from_slice(&original[..original.len().min(session.truncate)]);
            copies.push(Queued { port, queue: get("qid") as u8, bypass: false, data });
        }
        copies
    }
}
