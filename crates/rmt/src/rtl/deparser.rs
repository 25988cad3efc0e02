//! The deparser as a module. Checksums come first, in clocks of their own where timing is split. Then come conditions
//! in one clock, and the headers one before the other in the next.
use super::expr::{Operands, Packed, assignment, expression, packed, refuse};
use super::plan::{PORT_SET, Plan};
use super::stage::Shared;
use super::sums;
use super::text::{Text, bits_for, fit, logic, number};
use crate::diag::{Pos, Res};
use crate::ir::{Deparse, Expr, FieldId, Gress};
use std::collections::BTreeSet;

/// Names in the deparser: of what it writes itself, and of what came to it.
struct Reading<'r, 'p> {
    plan: &'r Plan<'p>,
    written: BTreeSet<FieldId>,
    /// The struct that holds the fields.
    holder: String,
}

impl Operands for Reading<'_, '_> {
    fn field(&self, id: FieldId) -> String {
        let known = self.plan.carried.last().is_some_and(|c| c.fields.contains(&id));
        match (self.written.contains(&id), known) {
            (true, _) => self.plan.field(id).into(),
            (false, true) => format!("{}.{}", self.holder, self.plan.field(id)),
            (false, false) => number(0, self.plan.width(id)),
        }
    }
}

/// A deparser's module, and the sizes of what leaves.
pub(super) struct Made {
    pub text: String,
    pub out_bytes: u32,
    /// Bits of what each mirror puts in front of a copy.
    pub mirrors: Vec<u32>,
    /// From its input to its output.
    pub clocks: u32,
}

/// What is emitted or mirrored, in the order of the program.
#[derive(Default)]
struct Outputs {
    /// Bits of each header.
    emits: Vec<u32>,
    mirrors: Vec<u32>,
    /// Words of each checksum, of the fields as they came.
    sums: Vec<Packed>,
    written: BTreeSet<FieldId>,
}

impl Outputs {
    fn find(&mut self, input: &Reading, list: &[Deparse]) -> Res<()> {
        let program = input.plan.program;
        let bits = |values: &[Expr]| values.iter().map(|e| e.ty.width()).sum::<u32>();
        let pos = |values: &[Expr]| values.first().map_or(Pos::default(), |e| e.pos);
        for item in list {
            match item {
                Deparse::Emit(h) if program.headers[*h].intrinsic => {}
                Deparse::Emit(h) => self.emits.push(program.headers[*h].bits),
                Deparse::Checksum(values, dst, _) => {
                    if values.iter().flat_map(Expr::fields).any(|field| self.written.contains(&field)) {
                        return refuse(pos(values), "a checksum over another one");
                    }
                    self.sums.push(packed(values, 16, input)?);
                    self.written.extend(dst.field());
                }
                Deparse::If(_, yes, no) => {
                    self.find(input, yes)?;
                    self.find(input, no)?;
                }
                Deparse::Mirror(_, values, _) => self.mirrors.push(bits(values).next_multiple_of(8).max(8)),
                Deparse::Digest(name, values) => return refuse(pos(values), format!("the digest `{name}`")),
                Deparse::Resubmit(values) => return refuse(pos(values), "a resubmission"),
            }
        }
        Ok(())
    }
}

pub(super) fn module(plan: &Plan, shared: &Shared) -> Res<Made> {
    let list = &plan.program.half(plan.gress).deparser;
    let input = Reading { plan, written: BTreeSet::new(), holder: "in".into() };
    let mut outputs = Outputs::default();
    outputs.find(&input, list)?;
    let waits = if outputs.sums.is_empty() { 0 } else { sums::clocks(shared.timing) };
    let holder = sums::holder("in", waits);
    let before = Reading { plan, written: BTreeSet::new(), holder: holder.clone() };
    let reading = Reading { plan, written: outputs.written.clone(), holder };
    let out_bytes = (outputs.emits.iter().sum::<u32>() / 8).max(1);
    let mut text = Text::default();
    head(&mut text, shared, plan, &outputs, out_bytes);
    let kind = format!("{}_pkg::s{}_t", shared.half, plan.stages.len());
    sums::delays(&mut text, shared.half, &kind, ["in", "in_ctl"], waits);
    outputs.sums.iter().enumerate().for_each(|(i, words)| sums::sum(&mut text, shared.timing, i, words));
    declare(&mut text, plan, &outputs);
    text.line("always_comb begin");
    let names = |kind: &str, count: usize, endings: &[&str]| -> Vec<String> {
        (0..count).flat_map(|i| endings.iter().map(move |ending| format!("{kind}_{i}{ending}"))).collect()
    };
    let mut signals: Vec<String> = reading.written.iter().map(|id| plan.field(*id).to_string()).collect();
    signals.extend(names("emit", outputs.emits.len(), &["", "_data"]));
    signals.extend(names("mirror", outputs.mirrors.len(), &["", "_session", "_data"]));
    text.begin_gated(&format!("{}.slot", reading.holder), signals.iter().map(String::as_str));
    for id in &reading.written {
        text.line(format!("{} = {};", plan.field(*id), before.field(*id)));
    }
    for i in 0..outputs.emits.len() {
        text.line(format!("emit_{i} = 1'b0;"));
        text.line(format!("emit_{i}_data = '0;"));
    }
    for i in 0..outputs.mirrors.len() {
        text.line(format!("mirror_{i} = 1'b0;"));
        text.line(format!("mirror_{i}_session = 8'd0;"));
        text.line(format!("mirror_{i}_data = '0;"));
    }
    let mut at = At::default();
    items(&mut text, &reading, list, &mut at)?;
    text.end_gated();
    text.line("end");
    first_clock(&mut text, plan, &reading, &outputs);
    second_clock(&mut text, &outputs, out_bytes);
    let unused: Vec<String> = reading.written.iter().map(|f| plan.field(*f).to_string()).collect();
    text.line(format!(
        "wire unused_bits = &{{1'b0, {}, drop_ctl{}}};",
        reading.holder,
        unused.iter().map(|n| format!(", {n}")).collect::<String>()
    ));
    text.line("endmodule");
    Ok(Made { text: text.text(), out_bytes, mirrors: outputs.mirrors, clocks: 2 + waits })
}

fn head(text: &mut Text, shared: &Shared, plan: &Plan, outputs: &Outputs, out_bytes: u32) {
    let half = shared.half;
    text.line(format!("// The deparser of {half}: the headers that are valid, in front of the rest of the packet."));
    text.line(format!("module {half}_deparser ("));
    let mut ports = vec![
        "input  logic clk".into(),
        "input  logic rst".into(),
        format!("input  {half}_pkg::s{}_t in", plan.stages.len()),
        format!("input  {half}_pkg::control_t in_ctl"),
        format!("output {half}_pkg::control_t out_ctl"),
    ];
    ports.extend(out_ports(out_bytes, &outputs.mirrors));
    text.ports(&ports);
}

/// Output ports of a half.
pub(super) fn out_ports(out_bytes: u32, mirrors: &[u32]) -> Vec<String> {
    let mirrors = if mirrors.is_empty() { &[8] } else { mirrors };
    vec![
        "output logic out_valid".into(),
        "output logic out_drop".into(),
        "output logic [8:0] out_port".into(),
        "output logic [6:0] out_queue".into(),
        "output logic out_bypass".into(),
        "output logic [15:0] out_head".into(),
        "output logic [15:0] out_rest".into(),
        format!("output logic [{}:0] out_data", out_bytes * 8 - 1),
        format!("output {} mirror_valid", logic(mirrors.len() as u32)),
        format!("output logic [{}:0] mirror_session", 8 * mirrors.len() - 1),
        "output logic [8:0] mirror_port".into(),
        "output logic [6:0] mirror_queue".into(),
        format!("output logic [{}:0] mirror_data", mirrors.iter().sum::<u32>() - 1),
    ]
}

/// Headers and mirrors, of this clock and the next.
fn declare(text: &mut Text, plan: &Plan, outputs: &Outputs) {
    outputs.written.iter().for_each(|f| text.line(format!("{} {};", logic(plan.width(*f)), plan.field(*f))));
    for (i, bits) in outputs.emits.iter().enumerate() {
        text.line(format!("logic emit_{i}, emit_{i}_q;"));
        text.line(format!("logic [{}:0] emit_{i}_data, emit_{i}_data_q;", bits - 1));
    }
    for (i, bits) in outputs.mirrors.iter().enumerate() {
        text.line(format!("logic mirror_{i}, mirror_{i}_q;"));
        text.line(format!("logic [7:0] mirror_{i}_session, mirror_{i}_session_q;"));
        text.line(format!("logic [{}:0] mirror_{i}_data, mirror_{i}_data_q;", bits - 1));
    }
}

/// How many of each there were before.
#[derive(Default)]
struct At {
    emit: usize,
    mirror: usize,
    sum: usize,
}

fn items(text: &mut Text, o: &Reading, list: &[Deparse], at: &mut At) -> Res<()> {
    let plan = o.plan;
    for item in list {
        match item {
            Deparse::Emit(h) => {
                let header = &plan.program.headers[*h];
                if header.intrinsic {
                    continue;
                }
                let fields: Vec<String> = header.fields.iter().map(|f| o.field(*f)).collect();
                text.line(format!("if ({}) begin // {}", o.field(header.valid), header.name));
                text.line(format!("emit_{} = 1'b1;", at.emit));
                text.line(format!("emit_{}_data = {{{}}};", at.emit, fields.join(", ")));
                text.line("end");
                at.emit += 1;
            }
            Deparse::Checksum(_, dst, zeros_as_ones) => {
                let sum = format!("(~sum_{})", at.sum);
                at.sum += 1;
                let Some(id) = dst.field() else { continue };
                text.line(assignment(plan.field(id), plan.width(id), dst, &sum, 16));
                if *zeros_as_ones {
                    let (name, ones) = (plan.field(id), number(0xffff, 16));
                    text.line(format!("if ({name} == 16'd0) {name} = {ones};"));
                }
            }
            Deparse::If(cond, yes, no) => {
                text.line(format!("if ({}) begin", expression(cond, o)?));
                items(text, o, yes, at)?;
                text.line("end");
                if !no.is_empty() {
                    text.line("else begin");
                    items(text, o, no, at)?;
                    text.line("end");
                }
            }
            Deparse::Mirror(session, values, _) => {
                let bits = packed(values, 8, o)?;
                let session = fit(&expression(session, o)?, session.ty.width(), 8);
                text.line(format!("mirror_{} = 1'b1;", at.mirror));
                text.line(format!("mirror_{}_session = {session};", at.mirror));
                text.line(format!("mirror_{}_data = {};", at.mirror, bits.text));
                at.mirror += 1;
            }
            Deparse::Digest(..) | Deparse::Resubmit(_) => {}
        }
    }
    Ok(())
}

/// Verdicts, and the registers between the clocks.
fn first_clock(text: &mut Text, plan: &Plan, o: &Reading, outputs: &Outputs) {
    let half = plan.program.half(plan.gress);
    let get = |name: &str, width: u32| match half.intrinsic.get(name) {
        Some(id) => fit(&o.field(*id), plan.width(*id), width),
        None => number(0, width),
    };
    let of = |name: &str| format!("{}_intrinsic_metadata_for_deparser_t.{name}", plan.gress.name());
    let tm = |name: &str, width: u32| get(&format!("ingress_intrinsic_metadata_for_tm_t.{name}"), width);
    text.line(format!("wire [2:0] drop_ctl = {};", get(&of("drop_ctl"), 3)));
    let (port, nowhere) = match plan.gress {
        Gress::Ingress => (tm("ucast_egress_port", 9), format!(" || !{}", get(PORT_SET, 1))),
        Gress::Egress => (format!("{}.port", o.holder), String::new()),
    };
    text.line("logic slot_q, drop_q, bypass_q;");
    text.line("logic [8:0] port_q, mirror_port_q;");
    text.line("logic [6:0] queue_q, mirror_queue_q;");
    text.line("logic [15:0] rest_q;");
    text.line(format!("{}_pkg::control_t q_ctl;", plan.gress.name()));
    let holder = &o.holder;
    text.line("always_ff @(posedge clk) begin");
    text.line(format!("slot_q <= {holder}.slot && !rst;"));
    text.line(format!("drop_q <= !{holder}.live || drop_ctl[0]{nowhere};"));
    text.line(format!("port_q <= {port};"));
    text.line(format!("queue_q <= {};", tm("qid", 7)));
    text.line(format!("bypass_q <= {};", tm("bypass_egress", 1)));
    text.line(format!("rest_q <= {holder}.rest;"));
    text.line(format!("mirror_port_q <= {};", get(&of("mirror_egress_port"), 9)));
    text.line(format!("mirror_queue_q <= {};", get(&of("mirror_qid"), 7)));
    for i in 0..outputs.emits.len() {
        text.line(format!("emit_{i}_q <= emit_{i} && {holder}.live;"));
        text.line(format!("emit_{i}_data_q <= emit_{i}_data;"));
    }
    for i in 0..outputs.mirrors.len() {
        text.line(format!("mirror_{i}_q <= mirror_{i} && {holder}.live && !drop_ctl[2];"));
        text.line(format!("mirror_{i}_session_q <= mirror_{i}_session;"));
        text.line(format!("mirror_{i}_data_q <= mirror_{i}_data;"));
    }
    text.line(format!("q_ctl <= {holder}_ctl;"));
    text.line("if (rst) q_ctl.valid <= 1'b0;");
    text.line("end");
}

/// From the last header to the first: each that is there moves what follows it to the right.
fn second_clock(text: &mut Text, outputs: &Outputs, out_bytes: u32) {
    let width = out_bytes * 8;
    text.line(format!("logic [{}:0] data;", width - 1));
    let of_head = bits_for(out_bytes as usize + 1);
    text.line(format!("{} head;", logic(of_head)));
    text.line("always_comb begin");
    text.line("data = '0;");
    for (i, bits) in outputs.emits.iter().enumerate().rev() {
        let rest = if *bits == width { String::new() } else { format!(", data[{}:{bits}]", width - 1) };
        text.line(format!("if (emit_{i}_q) data = {{emit_{i}_data_q{rest}}};"));
    }
    let lengths = outputs.emits.iter().enumerate();
    let lengths = lengths.map(|(i, bits)| format!("(emit_{i}_q ? {of_head}'d{} : '0)", bits / 8)).collect();
    text.line(format!("head = {};", sums::tree(lengths).unwrap_or_else(|| "'0".into())));
    text.line("end");
    text.line("always_ff @(posedge clk) begin");
    text.line("out_valid <= slot_q && !rst;");
    text.line("out_drop <= drop_q;");
    for name in ["port", "queue", "bypass", "rest"] {
        text.line(format!("out_{name} <= {name}_q;"));
    }
    text.line(format!("out_head <= {};", fit("head", of_head, 16)));
    text.line("out_data <= data;");
    text.line("mirror_port <= mirror_port_q;");
    text.line("mirror_queue <= mirror_queue_q;");
    let list = |ending: &str| {
        let all: Vec<String> = (0..outputs.mirrors.len()).rev().map(|i| format!("mirror_{i}{ending}")).collect();
        if all.is_empty() { "'0".into() } else { format!("{{{}}}", all.join(", ")) }
    };
    text.line(format!("mirror_valid <= {};", list("_q")));
    text.line(format!("mirror_session <= {};", list("_session_q")));
    text.line(format!("mirror_data <= {};", list("_data_q")));
    text.line("out_ctl <= q_ctl;");
    text.line("if (rst) begin");
    text.line("mirror_valid <= '0;");
    text.line("out_ctl.valid <= 1'b0;");
    text.line("end");
    text.line("end");
}
