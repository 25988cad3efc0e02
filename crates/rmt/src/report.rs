//! Resource report in the form of thesis table 5.2, and the placement of everything.
use crate::deps::{Graph, Kind};
use crate::ir::{Gress, Program};
use crate::place::{Placement, Resources, STAGE, STAGES, phv_bits};
use std::fmt;

/// Bits of the packet header vector: 224 containers that actions can write, and those that they can only set.
pub const PHV_BITS: u32 = 4096;

/// One logical table and its stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// A table's name, or what a condition reads, or what statements set first, with file and line.
    pub name: String,
    /// Which half.
    pub gress: Gress,
    /// From 0; of a table that is spread, the last.
    pub stage: usize,
    /// A condition.
    pub gateway: bool,
    /// Registers it works on.
    pub registers: Vec<String>,
}

/// Resources of a whole program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every logical table.
    pub tables: Vec<Placed>,
    /// Resources used in each stage; its length is the number of stages.
    pub stages: Vec<Resources>,
    /// Bits of the packet header vector.
    pub phv_bits: u32,
    /// Estimated, the sum of both halves without queues, in nanoseconds.
    pub latency_ns: u32,
    /// Suspicious things.
    pub warnings: Vec<crate::Diagnostic>,
}

/// Clock in GHz times 10, and cycles: of parsers and deparsers, and of a stage. Fitted to the one published figure,
/// 395 ns for 14 stages in both halves (thesis table 5.2); the compiler for the chip is more exact.
const CLOCK_GHZ_X10: u32 = 12;
const FIXED_CYCLES: u32 = 82;
const STAGE_CYCLES: u32 = 14;

impl Report {
    pub(crate) fn new(program: &Program, graph: &Graph, placement: &Placement) -> Report {
        let tables = graph.nodes.iter().zip(&placement.stage).map(|(node, stage)| Placed {
            name: node.name.clone(),
            gress: node.gress,
            stage: *stage,
            gateway: node.kind == Kind::Gateway,
            registers: node.uses.registers.iter().map(|r| program.registers[*r].name.clone()).collect(),
        });
        let tables: Vec<Placed> = tables.collect();
        let depth = |g| tables.iter().filter(|t| t.gress == g).map(|t| t.stage as u32 + 1).max().unwrap_or(0);
        let total = FIXED_CYCLES + (depth(Gress::Ingress) + depth(Gress::Egress)) * STAGE_CYCLES;
        Report {
            stages: placement.used.clone(),
            phv_bits: phv_bits(program, graph),
            latency_ns: total * 10 / CLOCK_GHZ_X10,
            tables,
            warnings: Vec::new(),
        }
    }

    /// Sum over all stages.
    pub fn total(&self) -> Resources {
        self.stages.iter().fold(Resources::default(), |sum, s| sum.plus(s))
    }

    /// Rows of thesis table 5.2: name and per cent of what the pipeline has.
    pub fn shares(&self) -> Vec<(&'static str, f64)> {
        let total = self.total();
        let share = |used: u32, has: u32| used as f64 * 100.0 / (has as usize * STAGES) as f64;
        let bytes = total.exact_bytes + total.ternary_bytes;
        vec![
            ("SRAM", share(total.sram, STAGE.sram)),
            ("Map RAM", share(total.map_ram, STAGE.map_ram)),
            ("TCAM", share(total.tcam, STAGE.tcam)),
            ("VLIW Instruction", share(total.vliw, STAGE.vliw)),
            ("Stateful ALU", share(total.alus, STAGE.alus)),
            ("Match Crossbar", share(bytes, STAGE.exact_bytes + STAGE.ternary_bytes)),
            ("Gateway", share(total.gateways, STAGE.gateways)),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<28} Usage", "Resource")?;
        writeln!(f, "{:<28} {}/{STAGES}", "Stages", self.stages.len())?;
        writeln!(f, "{:<28} {} ns (estimate)", "Processing Latency", self.latency_ns)?;
        for (name, share) in self.shares() {
            writeln!(f, "{name:<28} {share:.1} %")?;
        }
        let phv = self.phv_bits as f64 * 100.0 / PHV_BITS as f64;
        writeln!(f, "{:<28} {phv:.1} % ({} bits)", "Packet Header Vector", self.phv_bits)?;
        for (number, used) in self.stages.iter().enumerate() {
            writeln!(f)?;
            let list: Vec<String> =
                used.list().iter().filter(|(_, n)| *n > 0).map(|(n, v)| format!("{v} {n}")).collect();
            writeln!(f, "stage {number}: {}", list.join(", "))?;
            for table in self.tables.iter().filter(|t| t.stage == number) {
                write!(f, "  {:<8} {}", table.gress.name(), table.name)?;
                match table.registers.is_empty() {
                    true => writeln!(f)?,
                    false => writeln!(f, " [{}]", table.registers.join(", "))?,
                }
            }
        }
        Ok(())
    }
}
