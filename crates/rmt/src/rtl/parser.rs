//! The parser as a module: its states, once for each place in the packet where they are entered, decided in one clock.
//! Checksums follow, in clocks of their own where timing is split.
use super::expr::{Operands, Packed, assignment, expression, packed, refuse};
use super::hold::reset;
use super::lookup::matches;
use super::plan::Plan;
use super::stage::Shared;
use super::sums;
use super::text::{Text, fit, logic, number};
use super::timing::Timing;
use crate::diag::Res;
use crate::ir::{Dst, Expr, FieldId, Gress, ParseOp, Program, Target};
use std::collections::BTreeSet;

/// States at different places of the packet at most, and bytes of headers.
const MOST_STATES: usize = 200;
const MOST_BYTES: u32 = 512;

/// A state, entered with the cursor at this bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    state: usize,
    cursor: u32,
}

/// What the architecture puts in front of a packet.
struct Front {
    /// One behind the other, with their bits.
    parts: Vec<(String, u32)>,
}

impl Front {
    fn new(program: &Program, gress: Gress) -> Front {
        let type_name = format!("{}_intrinsic_metadata_t", gress.name());
        let mut parts = Vec::new();
        if let Some(header) = program.headers.iter().find(|h| h.gress == gress && h.type_name == type_name) {
            for id in &header.fields {
                let field = program.field(*id);
                let width = field.ty.width();
                let (known, bits) = match &field.name[header.name.len() + 1..] {
                    "ingress_port" | "egress_port" => ("in_port", 9),
                    "egress_qid" => ("in_queue", 7),
                    "pkt_length" => ("in_len", 16),
                    "ingress_mac_tstamp" | "enq_tstamp" => ("in_time", 48),
                    _ => ("1'b0", 1),
                };
                parts.push((fit(known, bits, width), width));
            }
        }
        if gress == Gress::Ingress {
            parts.push(("192'd0".into(), 192));
        }
        Front { parts }
    }

    fn bits(&self) -> u32 {
        self.parts.iter().map(|p| p.1).sum()
    }
}

struct Parser<'p, 'q> {
    plan: &'q Plan<'p>,
    front: Front,
    /// In an order in which each comes behind those that lead to it.
    entries: Vec<Entry>,
    /// Bits of the front and the headers.
    bits: u32,
    /// Fields that are read.
    live: BTreeSet<FieldId>,
    /// What is summed and verified, in this order.
    late: Vec<Late>,
}

/// What follows the states.
enum Late {
    /// These words are added to a unit's sum, or taken from it.
    Add { unit: usize, words: Packed, subtract: bool },
    /// Whether a unit's sum is right.
    Verify { unit: usize, dst: Dst },
}

/// A parser's module.
pub(super) struct Made {
    pub text: String,
    /// Bytes of the packet that it may read.
    pub in_bytes: u32,
    /// From its input to its output.
    pub clocks: u32,
}

pub(super) fn module(plan: &Plan, shared: &Shared) -> Res<Made> {
    let front = Front::new(plan.program, plan.gress);
    let live = plan.carried[0].fields.clone();
    let mut parser = Parser { plan, front, entries: Vec::new(), bits: 0, live, late: Vec::new() };
    parser.order()?;
    parser.add_own_reads();
    let in_bytes = (parser.bits.saturating_sub(parser.front.bits()) / 8).max(1);
    parser.bits = parser.front.bits() + in_bytes * 8;
    parser.later()?;
    let mut text = Text::default();
    parser.head(&mut text, shared, in_bytes);
    let mut late = 0;
    for entry in &parser.entries {
        parser.state(&mut text, shared, *entry, &mut late)?;
    }
    text.line("end");
    let clocks = parser.tail(&mut text, shared);
    Ok(Made { text: text.text(), in_bytes, clocks })
}

impl Parser<'_, '_> {
    /// All entries that can be met, and how many bits they read.
    fn order(&mut self) -> Res<()> {
        let mut ready = Vec::new();
        let mut open = BTreeSet::new();
        self.visit(Entry { state: 0, cursor: 0 }, &mut open, &mut ready)?;
        ready.reverse();
        self.entries = ready;
        Ok(())
    }

    fn visit(&mut self, entry: Entry, open: &mut BTreeSet<Entry>, ready: &mut Vec<Entry>) -> Res<()> {
        let states = &self.plan.program.half(self.plan.gress).states;
        let Some(state) = states.get(entry.state) else { return Ok(()) };
        if ready.contains(&entry) {
            return Ok(());
        }
        let end = self.end(entry);
        if !open.insert(entry) || open.len() + ready.len() > MOST_STATES || end > self.front.bits() + MOST_BYTES * 8 {
            let what =
                format!("the parser state `{}`, from which a loop or more than {MOST_BYTES} bytes follow,", state.name);
            return refuse(state.pos, what);
        }
        self.bits = self.bits.max(end).max(self.lookahead_end(entry));
        for (_, target) in &state.cases {
            match target {
                Target::State(next) => self.visit(Entry { state: *next, cursor: end }, open, ready)?,
                Target::Accept if end < self.front.bits() => {
                    return refuse(state.pos, "a parser that accepts inside the intrinsic metadata");
                }
                Target::Accept | Target::Reject => {}
            }
        }
        open.remove(&entry);
        ready.push(entry);
        Ok(())
    }

    fn end(&self, entry: Entry) -> u32 {
        self.ops(entry).iter().map(|op| self.length(op)).sum::<u32>() + entry.cursor
    }

    fn ops(&self, entry: Entry) -> &[ParseOp] {
        &self.plan.program.half(self.plan.gress).states[entry.state].ops
    }

    fn length(&self, op: &ParseOp) -> u32 {
        match op {
            ParseOp::Extract(h, _) => self.plan.program.headers[*h].bits,
            ParseOp::Advance(bits) => *bits,
            _ => 0,
        }
    }

    /// Behind the last bit of each lookahead of this state.
    fn lookaheads(&self, entry: Entry) -> Vec<u32> {
        let mut ends = Vec::new();
        let mut add = |e: &Expr, cursor: u32| {
            e.walk(&mut |e| {
                if let crate::ir::ExprKind::Lookahead(offset) = e.kind {
                    ends.push(cursor + offset + e.ty.width());
                }
            });
        };
        let mut cursor = entry.cursor;
        for op in self.ops(entry) {
            match op {
                ParseOp::Assign(_, e) => add(e, cursor),
                ParseOp::Checksum(_, values, _) => values.iter().for_each(|e| add(e, cursor)),
                _ => {}
            }
            cursor += self.length(op);
        }
        let state = &self.plan.program.half(self.plan.gress).states[entry.state];
        state.on.iter().for_each(|e| add(e, cursor));
        ends
    }

    /// The last bit that a lookahead of this state sees.
    fn lookahead_end(&self, entry: Entry) -> u32 {
        self.lookaheads(entry).into_iter().max().unwrap_or(0).next_multiple_of(8)
    }

    /// Fields that the parser itself reads, too.
    fn add_own_reads(&mut self) {
        let read = self.read();
        self.live.extend(read);
    }

    fn read(&self) -> BTreeSet<FieldId> {
        let mut out = BTreeSet::new();
        for state in &self.plan.program.half(self.plan.gress).states {
            out.extend(state.on.iter().flat_map(Expr::fields));
            for op in &state.ops {
                match op {
                    ParseOp::Assign(_, e) => out.extend(e.fields()),
                    ParseOp::Checksum(_, values, _) => out.extend(values.iter().flat_map(Expr::fields)),
                    _ => {}
                }
            }
        }
        out
    }

    /// What the states leave to the sums behind them. So no state can read what was verified.
    fn later(&mut self) -> Res<()> {
        let read = self.read();
        let mut late = Vec::new();
        for entry in &self.entries {
            let mut cursor = entry.cursor;
            for op in self.ops(*entry) {
                match op {
                    ParseOp::Checksum(unit, values, subtract) => {
                        let words = packed(values, 16, &Reading { parser: self, cursor })?;
                        late.push(Late::Add { unit: *unit, words, subtract: *subtract });
                    }
                    ParseOp::Verify(unit, dst) => {
                        if dst.field().is_some_and(|id| read.contains(&id)) {
                            let state = &self.plan.program.half(self.plan.gress).states[entry.state];
                            return refuse(state.pos, "a parser that decides by a checksum");
                        }
                        late.push(Late::Verify { unit: *unit, dst: dst.clone() });
                    }
                    _ => {}
                }
                cursor += self.length(op);
            }
        }
        self.late = late;
        Ok(())
    }

    fn head(&self, text: &mut Text, shared: &Shared, in_bytes: u32) {
        let (half, plan) = (shared.half, self.plan);
        text.line(format!("// The parser of {half}: the headers of one packet a clock."));
        text.line(format!("module {half}_parser ("));
        text.ports(&[
            "input  logic clk".into(),
            "input  logic rst".into(),
            "input  logic packet_valid".into(),
            "input  logic [15:0] packet_len".into(),
            format!("input  logic [{}:0] packet_data", in_bytes * 8 - 1),
            "input  logic [8:0] packet_port".into(),
            "input  logic [6:0] packet_queue".into(),
            "input  logic [47:0] packet_time".into(),
            format!("input  {half}_pkg::control_t packet_ctl"),
            format!("output {half}_pkg::s0_t out"),
            format!("output {half}_pkg::control_t out_ctl"),
        ]);
        self.taken(text, shared, in_bytes);
        let mut all: Vec<String> = self.front.parts.iter().map(|p| p.0.clone()).collect();
        all.push("in_data".into());
        text.line("// The packet behind its intrinsic metadata, the first bit leftmost.");
        text.line(format!("wire [{}:0] bits = {{{}}};", self.bits - 1, all.join(", ")));
        self.live.iter().for_each(|f| text.line(format!("{} {};", logic(plan.width(*f)), plan.field(*f))));
        if !self.late.is_empty() {
            text.line("// What is summed, and which sums this packet has and asks for.");
            text.line(format!("logic [{}:0] asks;", self.late.len() - 1));
        }
        for (i, words) in self.summed() {
            text.line(format!("logic [{}:0] words_{i};", words.width - 1));
        }
        let names: Vec<String> = self.entries.iter().map(|e| self.at(*e)).collect();
        text.line(format!("logic {};", names.join(", ")));
        text.line("logic accept;");
        text.line("logic [15:0] rest;");
        text.line("always_comb begin");
        let stamp = format!("{half}_intrinsic_metadata_from_parser_t.global_tstamp");
        let stamp = plan.program.half(plan.gress).intrinsic.get(&stamp);
        for id in &self.live {
            let value = if Some(id) == stamp { fit("in_time", 48, plan.width(*id)) } else { "'0".into() };
            text.line(format!("{} = {value};", plan.field(*id)));
        }
        if !self.late.is_empty() {
            text.line("asks = '0;");
        }
        self.summed().for_each(|(i, _)| text.line(format!("words_{i} = '0;")));
        text.line("accept = 1'b0;");
        text.line("rest = 16'd0;");
        let first = |i: usize| if i == 0 { "in_valid" } else { "1'b0" };
        names.iter().enumerate().for_each(|(i, n)| text.line(format!("{n} = {};", first(i))));
    }

    /// The packet as the states see it, and which lengths it has at least. Where timing is split, a clock later.
    fn taken(&self, text: &mut Text, shared: &Shared, in_bytes: u32) {
        let lengths = self.lengths();
        text.line("logic in_valid;");
        for (name, width) in [("len", 16), ("data", in_bytes * 8), ("port", 9), ("queue", 7), ("time", 48)] {
            text.line(format!("{} in_{name};", logic(width)));
        }
        text.line(format!("{}_pkg::control_t in_ctl;", shared.half));
        lengths.iter().for_each(|bytes| text.line(format!("logic {};", has(*bytes))));
        let (begin, end, sign) = match shared.timing {
            Timing::Merged => ("always_comb begin", "", "="),
            Timing::Split => ("always_ff @(posedge clk) begin", " && !rst", "<="),
        };
        text.line(begin);
        for name in ["len", "data", "port", "queue", "time", "ctl"] {
            text.line(format!("in_{name} {sign} packet_{name};"));
        }
        text.line(format!("in_valid {sign} packet_valid{end};"));
        for bytes in lengths {
            text.line(format!("{} {sign} packet_len >= 16'd{bytes};", has(bytes)));
        }
        if shared.timing == Timing::Split {
            text.line("if (rst) in_ctl.valid <= 1'b0;");
        }
        text.line("end");
    }

    /// Lengths of packets that states ask for, in bytes.
    fn lengths(&self) -> BTreeSet<u32> {
        let ends = self.entries.iter().map(|entry| self.end(*entry) / 8 * 8);
        let ends = ends.chain(self.entries.iter().flat_map(|entry| self.lookaheads(*entry)));
        ends.map(|end| end.saturating_sub(self.front.bits()).div_ceil(8)).filter(|bytes| *bytes > 0).collect()
    }

    /// What is summed, with its number.
    fn summed(&self) -> impl Iterator<Item = (usize, &Packed)> {
        self.late.iter().enumerate().filter_map(|(i, late)| match late {
            Late::Add { words, .. } => Some((i, words)),
            Late::Verify { .. } => None,
        })
    }

    fn at(&self, entry: Entry) -> String {
        let states = &self.plan.program.half(self.plan.gress).states;
        format!(
            "at_{}_{}",
            states[entry.state].name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"),
            entry.cursor / 8
        )
    }

    fn state(&self, text: &mut Text, shared: &Shared, entry: Entry, late: &mut usize) -> Res<()> {
        let state = &self.plan.program.half(self.plan.gress).states[entry.state];
        let end = self.end(entry);
        let bytes = end.saturating_sub(self.front.bits()) / 8;
        text.line(format!("// {} ({}), at byte {}", state.name, (shared.place)(state.pos), entry.cursor / 8));
        let enough = if bytes > 0 { format!(" && {}", has(bytes)) } else { String::new() };
        text.line(format!("if ({}{enough}) begin", self.at(entry)));
        let mut cursor = entry.cursor;
        for op in &state.ops {
            self.op(text, op, cursor, late)?;
            cursor += self.length(op);
        }
        let operands = Reading { parser: self, cursor };
        let keys = state.on.iter().map(|e| expression(e, &operands)).collect::<Res<Vec<String>>>()?;
        let mut before = "";
        for (set, target) in &state.cases {
            let asks = set.iter().zip(&keys).zip(&state.on);
            let asks: Vec<String> = asks.filter_map(|((m, key), e)| matches(m, key, e.ty.width())).collect();
            let lines = match target {
                Target::Accept => {
                    vec![
                        "accept = 1'b1;".to_string(),
                        format!("rest = 16'd{};", (cursor - self.front.bits()).div_ceil(8)),
                    ]
                }
                Target::Reject => Vec::new(),
                Target::State(next) => vec![format!("{} = 1'b1;", self.at(Entry { state: *next, cursor }))],
            };
            if asks.is_empty() && before.is_empty() {
                lines.iter().for_each(|line| text.line(line));
                break;
            }
            let condition = if asks.is_empty() { "1'b1".into() } else { asks.join(" && ") };
            text.line(format!("{before}if ({condition}) begin"));
            lines.iter().for_each(|line| text.line(line));
            text.line("end");
            before = "else ";
        }
        text.line("end");
        Ok(())
    }

    fn op(&self, text: &mut Text, op: &ParseOp, cursor: u32, late: &mut usize) -> Res<()> {
        let plan = self.plan;
        let operands = Reading { parser: self, cursor };
        let is_live = |id: &FieldId| self.live.contains(id);
        match op {
            ParseOp::Extract(h, _) => {
                let header = &plan.program.headers[*h];
                let mut at = cursor;
                for id in &header.fields {
                    let width = plan.width(*id);
                    if is_live(id) {
                        text.line(format!("{} = {};", plan.field(*id), self.bits_at(at, width)));
                    }
                    at += width;
                }
                if is_live(&header.valid) {
                    text.line(format!("{} = 1'b1;", plan.field(header.valid)));
                }
            }
            ParseOp::Advance(_) => {}
            ParseOp::Assign(dst, e) => {
                if let Some(id) = dst.field().filter(is_live) {
                    let value = expression(e, &operands)?;
                    text.line(assignment(plan.field(id), plan.width(id), dst, &value, e.ty.width()));
                    // What was verified into this field before does not count.
                    let verified = |l: &Late| matches!(l, Late::Verify { dst, .. } if dst.field() == Some(id));
                    let before = self.late.iter().take(*late).enumerate().filter(|(_, l)| verified(l));
                    before.for_each(|(i, _)| text.line(format!("asks[{i}] = 1'b0;")));
                }
            }
            ParseOp::Checksum(..) | ParseOp::Verify(..) => {
                if let Late::Add { words, .. } = &self.late[*late] {
                    text.line(format!("words_{late} = {};", words.text));
                }
                text.line(format!("asks[{late}] = 1'b1;"));
                *late += 1;
            }
            ParseOp::Residual(_, dst) => {
                let pos = plan.program.half(plan.gress).states[self.state_of(op)].pos;
                let name = dst.field().map_or(String::new(), |id| plan.program.field(id).name.clone());
                return refuse(pos, format!("the sum of the payload, which passes by the pipeline, for `{name}`"));
            }
        }
        Ok(())
    }

    fn state_of(&self, op: &ParseOp) -> usize {
        let states = &self.plan.program.half(self.plan.gress).states;
        states.iter().position(|s| s.ops.iter().any(|o| std::ptr::eq(o, op))).unwrap_or(0)
    }

    fn bits_at(&self, at: u32, width: u32) -> String {
        let hi = self.bits - 1 - at;
        format!("bits[{hi}:{}]", hi + 1 - width)
    }

    /// What was parsed becomes what leaves, so many clocks later.
    fn tail(&self, text: &mut Text, shared: &Shared) -> u32 {
        text.line(format!("{}_pkg::s0_t next;", shared.half));
        text.line("always_comb begin");
        text.begin_gated("in_valid", ["next"]);
        text.line("next.slot = in_valid;");
        text.line("next.live = in_valid && accept;");
        text.line("next.rest = rest;");
        text.line("next.port = in_port;");
        for id in &self.plan.carried[0].fields {
            text.line(format!("next.{0} = {0};", self.plan.field(*id)));
        }
        text.end_gated();
        text.line("end");
        let waits = if self.late.is_empty() { 0 } else { sums::clocks(shared.timing) };
        let parsed = if waits > 0 { self.wait(text, shared, waits) } else { ["next".into(), "in_ctl".into()] };
        let leaves =
            if self.late.is_empty() { parsed[0].clone() } else { self.verify(text, shared, waits, &parsed[0]) };
        text.line("always_ff @(posedge clk) begin");
        text.line(format!("out <= {leaves};"));
        text.line(format!("out_ctl <= {};", parsed[1]));
        reset(text, &["out"]);
        text.line("end");
        let mut unused = vec!["bits".to_string(), "in_queue".into(), "in_time".into(), "in_len".into()];
        unused.extend(self.live.iter().map(|f| self.plan.field(*f).to_string()));
        text.line(format!("wire unused_bits = &{{1'b0, {}}};", unused.join(", ")));
        text.line("endmodule");
        let taken = u32::from(shared.timing == Timing::Split);
        1 + taken + if waits > 0 { waits + 1 } else { 0 }
    }

    /// Holds what was parsed while its sums are made. Their words go to them a clock later, too.
    fn wait(&self, text: &mut Text, shared: &Shared, waits: u32) -> [String; 2] {
        let half = shared.half;
        text.line(format!("{half}_pkg::s0_t first;"));
        text.line(format!("{half}_pkg::control_t first_ctl;"));
        for (i, words) in self.summed() {
            text.line(format!("logic [{}:0] words_{i}_q;", words.width - 1));
        }
        let asks: Vec<String> = (0..=waits).map(|n| format!("asks_{n}")).collect();
        text.line(format!("logic [{}:0] {};", self.late.len() - 1, asks.join(", ")));
        text.line("always_ff @(posedge clk) begin");
        text.line("first <= next;");
        text.line("first_ctl <= in_ctl;");
        text.line("asks_0 <= asks;");
        (1..=waits).for_each(|n| text.line(format!("asks_{n} <= asks_{};", n - 1)));
        self.summed().for_each(|(i, _)| text.line(format!("words_{i}_q <= words_{i};")));
        reset(text, &["first"]);
        text.line("end");
        sums::delays(text, half, &format!("{half}_pkg::s0_t"), ["first", "first_ctl"], waits);
        [sums::holder("first", waits), format!("{}_ctl", sums::holder("first", waits))]
    }

    /// Adds the sums in the order of the states, and verifies them. The name of what leaves.
    fn verify(&self, text: &mut Text, shared: &Shared, waits: u32, parsed: &str) -> String {
        let plan = self.plan;
        let (ending, asks) = if waits > 0 { ("_q", format!("asks_{waits}")) } else { ("", "asks".into()) };
        for (i, words) in self.summed() {
            sums::sum(text, shared.timing, i, &Packed { text: format!("words_{i}{ending}"), width: words.width });
        }
        sums::plus(text);
        let units = plan.program.half(plan.gress).checksums.0;
        (0..units).for_each(|u| text.line(format!("logic [15:0] unit_{u};")));
        text.line(format!("{}_pkg::s0_t checked;", shared.half));
        text.line("always_comb begin");
        text.line(format!("checked = {parsed};"));
        (0..units).for_each(|u| text.line(format!("unit_{u} = 16'd0;")));
        for (i, late) in self.late.iter().enumerate() {
            match late {
                Late::Add { unit, subtract, .. } => {
                    let sign = if *subtract { "~" } else { "" };
                    text.line(format!("if ({asks}[{i}]) unit_{unit} = plus(unit_{unit}, {sign}sum_{i});"));
                }
                Late::Verify { unit, dst } => {
                    if let Some(id) = dst.field().filter(|id| plan.carried[0].fields.contains(id)) {
                        let wrong = format!("(unit_{unit} != 16'hffff)");
                        let name = format!("checked.{}", plan.field(id));
                        text.line(format!("if ({asks}[{i}]) {}", assignment(&name, plan.width(id), dst, &wrong, 1)));
                    }
                }
            }
        }
        text.line("end");
        let units: String = (0..units).map(|u| format!(", unit_{u}")).collect();
        text.line(format!("wire unused_sums = &{{1'b0, {asks}{units}}};"));
        "checked".into()
    }
}

/// Whether a packet is at least so long.
fn has(bytes: u32) -> String {
    format!("has_{bytes}")
}

/// Names while a state reads.
struct Reading<'r, 'p, 'q> {
    parser: &'r Parser<'p, 'q>,
    cursor: u32,
}

impl Operands for Reading<'_, '_, '_> {
    fn field(&self, id: FieldId) -> String {
        self.parser.plan.field(id).into()
    }
    /// Zero, where the packet ends before.
    fn ahead(&self, offset: u32, width: u32) -> String {
        let (front, at) = (self.parser.front.bits(), self.cursor + offset);
        let value = self.parser.bits_at(at, width);
        let bytes = (at + width).saturating_sub(front).div_ceil(8);
        if bytes == 0 { value } else { format!("({} ? {value} : {})", has(bytes), number(0, width)) }
    }
}
