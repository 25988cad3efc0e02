//! The parser as a module: its states, once for each place in the packet where they are entered, decided in one clock.
use super::expr::{Operands, assignment, expression, packed, refuse};
use super::functions;
use super::lookup::matches;
use super::plan::Plan;
use super::stage::Shared;
use super::text::{Text, fit, logic, number};
use crate::diag::Res;
use crate::ir::{Expr, FieldId, Gress, ParseOp, Program, Target};
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
    /// Fields that somebody reads.
    wanted: BTreeSet<FieldId>,
}

/// A parser's module.
pub(super) struct Made {
    pub text: String,
    /// Of the packet, that it may look at.
    pub in_bytes: u32,
}

pub(super) fn module(plan: &Plan, shared: &Shared) -> Res<Made> {
    let front = Front::new(plan.program, plan.gress);
    let mut parser = Parser { plan, front, entries: Vec::new(), bits: 0, wanted: plan.carried[0].fields.clone() };
    parser.order()?;
    parser.want();
    let in_bytes = (parser.bits.saturating_sub(parser.front.bits()) / 8).max(1);
    parser.bits = parser.front.bits() + in_bytes * 8;
    let mut text = Text::default();
    parser.head(&mut text, shared, in_bytes)?;
    for entry in &parser.entries {
        parser.state(&mut text, shared, *entry)?;
    }
    text.line("end");
    parser.tail(&mut text, shared);
    Ok(Made { text: text.text(), in_bytes })
}

impl Parser<'_, '_> {
    /// All entries that can be met, and how many bits they look at.
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
        self.bits = self.bits.max(end).max(self.looks(entry));
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

    /// The last bit that a lookahead of this state sees.
    fn looks(&self, entry: Entry) -> u32 {
        let mut last = 0;
        let mut look = |e: &Expr, cursor: u32| {
            e.walk(&mut |e| {
                if let crate::ir::ExprKind::Lookahead(offset) = e.kind {
                    last = last.max(cursor + offset + e.ty.width());
                }
            });
        };
        let mut cursor = entry.cursor;
        for op in self.ops(entry) {
            if let ParseOp::Assign(_, e) = op {
                look(e, cursor);
            }
            cursor += self.length(op);
        }
        let state = &self.plan.program.half(self.plan.gress).states[entry.state];
        state.on.iter().for_each(|e| look(e, cursor));
        last.next_multiple_of(8)
    }

    /// Fields that the parser itself reads, too.
    fn want(&mut self) {
        let half = self.plan.program.half(self.plan.gress);
        for state in &half.states {
            self.wanted.extend(state.on.iter().flat_map(Expr::fields));
            for op in &state.ops {
                match op {
                    ParseOp::Assign(_, e) => self.wanted.extend(e.fields()),
                    ParseOp::Checksum(_, values, _) => self.wanted.extend(values.iter().flat_map(Expr::fields)),
                    _ => {}
                }
            }
        }
    }

    fn head(&self, text: &mut Text, shared: &Shared, in_bytes: u32) -> Res<()> {
        let (half, plan) = (shared.half, self.plan);
        text.line(format!("// The parser of {half}: the headers of one packet a clock."));
        text.line(format!("module {half}_parser ("));
        text.ports(&[
            "input  logic clk".into(),
            "input  logic rst".into(),
            "input  logic in_valid".into(),
            "input  logic [15:0] in_len".into(),
            format!("input  logic [{}:0] in_data", in_bytes * 8 - 1),
            "input  logic [8:0] in_port".into(),
            "input  logic [6:0] in_queue".into(),
            "input  logic [47:0] in_time".into(),
            format!("input  {half}_pkg::control_t in_ctl"),
            format!("output {half}_pkg::s0_t out"),
            format!("output {half}_pkg::control_t out_ctl"),
        ]);
        self.sums(text)?;
        let mut all: Vec<String> = self.front.parts.iter().map(|p| p.0.clone()).collect();
        all.push("in_data".into());
        text.line("// The packet behind its intrinsic metadata, the first bit leftmost.");
        text.line(format!("wire [{}:0] bits = {{{}}};", self.bits - 1, all.join(", ")));
        self.wanted.iter().for_each(|f| text.line(format!("{} {};", logic(plan.width(*f)), plan.field(*f))));
        let units = plan.program.half(plan.gress).checksums.0;
        (0..units).for_each(|u| text.line(format!("logic [15:0] sum_{u};")));
        let names: Vec<String> = self.entries.iter().map(|e| self.at(*e)).collect();
        text.line(format!("logic {};", names.join(", ")));
        text.line("logic accept;");
        text.line("logic [15:0] rest;");
        text.line("always_comb begin");
        let stamp = format!("{half}_intrinsic_metadata_from_parser_t.global_tstamp");
        let stamp = plan.program.half(plan.gress).intrinsic.get(&stamp);
        for id in &self.wanted {
            let value = if Some(id) == stamp { fit("in_time", 48, plan.width(*id)) } else { "'0".into() };
            text.line(format!("{} = {value};", plan.field(*id)));
        }
        (0..units).for_each(|u| text.line(format!("sum_{u} = 16'd0;")));
        text.line("accept = 1'b0;");
        text.line("rest = 16'd0;");
        let first = |i: usize| if i == 0 { "in_valid" } else { "1'b0" };
        names.iter().enumerate().for_each(|(i, n)| text.line(format!("{n} = {};", first(i))));
        Ok(())
    }

    /// Functions for the checksums.
    fn sums(&self, text: &mut Text) -> Res<()> {
        let mut widths = BTreeSet::new();
        for entry in &self.entries {
            for op in self.ops(*entry) {
                if let ParseOp::Checksum(_, values, _) = op {
                    widths.insert(values.iter().map(|e| e.ty.width()).sum::<u32>().next_multiple_of(16).max(16));
                    widths.insert(32);
                }
            }
        }
        widths.into_iter().for_each(|width| functions::sum(text, width));
        Ok(())
    }

    fn at(&self, entry: Entry) -> String {
        let states = &self.plan.program.half(self.plan.gress).states;
        format!(
            "at_{}_{}",
            states[entry.state].name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"),
            entry.cursor / 8
        )
    }

    fn state(&self, text: &mut Text, shared: &Shared, entry: Entry) -> Res<()> {
        let state = &self.plan.program.half(self.plan.gress).states[entry.state];
        let end = self.end(entry);
        let bytes = end.saturating_sub(self.front.bits()) / 8;
        text.line(format!("// {} ({}), at byte {}", state.name, (shared.place)(state.pos), entry.cursor / 8));
        let enough = if bytes > 0 { format!(" && in_len >= 16'd{bytes}") } else { String::new() };
        text.line(format!("if ({}{enough}) begin", self.at(entry)));
        let mut cursor = entry.cursor;
        for op in &state.ops {
            self.op(text, op, cursor)?;
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

    fn op(&self, text: &mut Text, op: &ParseOp, cursor: u32) -> Res<()> {
        let plan = self.plan;
        let operands = Reading { parser: self, cursor };
        let wanted = |id: &FieldId| self.wanted.contains(id);
        match op {
            ParseOp::Extract(h, _) => {
                let header = &plan.program.headers[*h];
                let mut at = cursor;
                for id in &header.fields {
                    let width = plan.width(*id);
                    if wanted(id) {
                        text.line(format!("{} = {};", plan.field(*id), self.bits_at(at, width)));
                    }
                    at += width;
                }
                if wanted(&header.valid) {
                    text.line(format!("{} = 1'b1;", plan.field(header.valid)));
                }
            }
            ParseOp::Advance(_) => {}
            ParseOp::Assign(dst, e) => {
                if let Some(id) = dst.field().filter(wanted) {
                    let value = expression(e, &operands)?;
                    text.line(assignment(plan.field(id), plan.width(id), dst, &value, e.ty.width()));
                }
            }
            ParseOp::Checksum(unit, values, subtract) => {
                let bits = packed(values, 16, &operands)?;
                let sign = if *subtract { "~" } else { "" };
                text.line(format!(
                    "sum_{unit} = sum_of_32({{sum_{unit}, {sign}sum_of_{}({})}});",
                    bits.width, bits.text
                ));
            }
            ParseOp::Verify(unit, dst) => {
                if let Some(id) = dst.field().filter(wanted) {
                    let right = format!("(sum_{unit} == 16'hffff)");
                    text.line(assignment(plan.field(id), plan.width(id), dst, &right, 1));
                }
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

    fn tail(&self, text: &mut Text, shared: &Shared) {
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
        text.line("always_ff @(posedge clk) begin");
        text.line("out <= next;");
        text.line("out_ctl <= in_ctl;");
        text.line("if (rst) begin");
        text.line("out.slot <= 1'b0;");
        text.line("out.live <= 1'b0;");
        text.line("out_ctl.valid <= 1'b0;");
        text.line("end");
        text.line("end");
        let mut unused = vec!["bits".to_string(), "in_queue".into(), "in_time".into(), "in_len".into()];
        unused.extend(self.wanted.iter().map(|f| self.plan.field(*f).to_string()));
        let units = self.plan.program.half(self.plan.gress).checksums.0;
        unused.extend((0..units).map(|u| format!("sum_{u}")));
        text.line(format!("wire unused_bits = &{{1'b0, {}}};", unused.join(", ")));
        text.line("endmodule");
    }
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
        if bytes == 0 { value } else { format!("(in_len >= 16'd{bytes} ? {value} : {})", number(0, width)) }
    }
}
