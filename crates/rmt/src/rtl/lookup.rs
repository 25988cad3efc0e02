//! Table look-up: by constant entries, or in memories that the control plane writes.
use super::expr::{Operands, expression};
use super::tables::{Layout, Shape, packed_args};
use super::text::{Text, fit, logic, number};
use crate::diag::Res;
use crate::ir::{ActionCall, Entry, Match, MatchKind, Program, Table, mask};

/// A table in its stage.
pub(super) struct Lookup<'l> {
    pub program: &'l Program,
    pub table: &'l Table,
    pub layout: &'l Layout,
    /// Of its node.
    pub name: &'l str,
    /// Its number on the control bus.
    pub target: usize,
}

impl Lookup<'_> {
    /// Entries in the order in which they win.
    pub(super) fn constant(&self, text: &mut Text, operands: &dyn Operands) -> Res<()> {
        let name = self.name;
        self.outcome(text);
        if !self.table.const_default {
            self.changeable(text, "m_ctl");
        }
        self.wins(text, operands)?;
        text.line("always_comb begin");
        if self.table.const_default {
            self.call(text, &self.table.default);
        } else {
            self.unpack(text, &format!("{name}_default"), false);
        }
        if !self.table.entries.is_empty() {
            text.line(format!("if ({name}_hit) begin"));
            self.clear(text);
            text.line("end");
        }
        for (i, entry) in self.table.entries.iter().enumerate() {
            let info = &self.program.actions[entry.call.action];
            text.line(format!("if ({name}_wins[{i}]) begin // {}", info.name));
            self.join(text, &entry.call);
            text.line("end");
        }
        text.line("end");
        text.line(format!("wire unused_{name} = &{{1'b0, {name}_hit{}}};", self.unused()));
        Ok(())
    }

    /// A bit for each constant entry: the packet has its key, and that of no entry before. Only entries whose keys can
    /// be the same packet's ask for each other, so that the depth does not grow with their number.
    fn wins(&self, text: &mut Text, operands: &dyn Operands) -> Res<()> {
        let (name, count) = (self.name, self.table.entries.len());
        let keys = self.table.keys.iter().map(|k| expression(&k.expr, operands)).collect::<Res<Vec<String>>>()?;
        if count == 0 {
            text.line(format!("assign {name}_hit = 1'b0;"));
            return Ok(());
        }
        text.line(format!("logic [{}:0] {name}_has, {name}_wins;", count - 1));
        let widths: Vec<u32> = self.table.keys.iter().map(|k| k.expr.ty.width()).collect();
        for (i, entry) in self.table.entries.iter().enumerate() {
            let asks = entry.keys.iter().zip(&keys).zip(&widths);
            let asks: Vec<String> = asks.filter_map(|((m, key), width)| matches(m, key, *width)).collect();
            let condition = if asks.is_empty() { "1'b1".to_string() } else { asks.join(" && ") };
            text.line(format!("assign {name}_has[{i}] = {condition};"));
            let meets = |earlier: &&Entry| meet(&earlier.keys, &entry.keys, &widths);
            let before = self.table.entries[..i].iter().enumerate().filter(|(_, e)| meets(e));
            let before: String = before.map(|(j, _)| format!(" && !{name}_has[{j}]")).collect();
            text.line(format!("assign {name}_wins[{i}] = {name}_has[{i}]{before};"));
        }
        text.line(format!("assign {name}_hit = |{name}_has;"));
        Ok(())
    }

    /// The key leaves with the stage's input, the result is there two clocks later.
    pub(super) fn in_memory(&self, text: &mut Text, operands: &dyn Operands) -> Res<()> {
        let (name, layout, target) = (self.name, self.layout, self.target);
        let (key, data) = (layout.key_bits(), layout.data_bits());
        self.outcome(text);
        if self.table.const_default {
            text.line(format!("wire [{}:0] {name}_default = {};", data - 1, self.packed(&self.table.default)));
        } else {
            self.changeable(text, "in_ctl");
        }
        let keys = self.table.keys.iter().map(|k| expression(&k.expr, operands)).collect::<Res<Vec<String>>>()?;
        text.line(format!("logic [{}:0] {name}_data;", data - 1));
        text.line(format!("wire {name}_write = in_ctl.valid && in_ctl.write && in_ctl.target == 8'd{target}"));
        text.line("  && in_ctl.index != 32'hffffffff;");
        let parameters = match layout.shape {
            Shape::Hashed { ways, address } => {
                format!("rtl_exact_table #(.KEY({key}), .DATA({data}), .WAYS({ways}), .ADDR({address}))")
            }
            Shape::Compared { entries } => {
                let index = super::text::bits_for(entries as usize);
                let start = format!(".KEY({key}), .DATA({data}), .ENTRIES({entries}), .INDEX({index})");
                match self.table.keys.iter().position(|k| k.kind == MatchKind::Range) {
                    Some(at) => {
                        let lower: u32 = layout.keys[at + 1..].iter().sum();
                        format!("rtl_ternary_table #({start}, .RANGE({}), .RANGE_AT({lower}))", layout.keys[at])
                    }
                    None => format!("rtl_ternary_table #({start})"),
                }
            }
            Shape::Constant => return Ok(()),
        };
        text.line(format!("{parameters} {name} ("));
        let mut ports = vec![
            ".clk(clk)".to_string(),
            format!(".key({{{}}})", keys.join(", ")),
            format!(".miss({name}_default)"),
            format!(".hit({name}_hit)"),
            format!(".data({name}_data)"),
            format!(".write({name}_write)"),
        ];
        match layout.shape {
            Shape::Hashed { address, .. } => {
                ports.push(".way(in_ctl.index[31:24])".into());
                ports.push(format!(".slot(in_ctl.index[{}:0])", address - 1));
            }
            Shape::Compared { entries } => {
                ports.push(format!(".slot(in_ctl.index[{}:0])", super::text::bits_for(entries as usize) - 1));
            }
            Shape::Constant => {}
        }
        ports.push(format!(".word(in_ctl.data[{}:0])", layout.entry_bits() - 1));
        text.connect(&ports);
        text.line("always_comb begin");
        self.unpack(text, &format!("{name}_data"), true);
        text.line("end");
        text.line(format!("wire unused_{name} = &{{1'b0, {name}_hit, {name}_data{}}};", self.unused()));
        Ok(())
    }

    fn unused(&self) -> String {
        let mut out = String::new();
        if self.layout.action_bits > 0 {
            out += &format!(", {}_action", self.name);
        }
        if self.layout.args_bits > 0 {
            out += &format!(", {}_args", self.name);
        }
        if !self.table.const_default || self.layout.shape != Shape::Constant {
            out += &format!(", {}_default", self.name);
        }
        out
    }

    /// Declares what the table finds.
    fn outcome(&self, text: &mut Text) {
        let name = self.name;
        text.line(format!("logic {name}_hit;"));
        if self.layout.action_bits > 0 {
            text.line(format!("{} {name}_action;", logic(self.layout.action_bits)));
        }
        if self.layout.args_bits > 0 {
            text.line(format!("{} {name}_args;", logic(self.layout.args_bits)));
        }
    }

    /// The default, which the control plane may change.
    fn changeable(&self, text: &mut Text, ctl: &str) {
        let (name, target, data) = (self.name, self.target, self.layout.data_bits());
        text.line(format!("logic [{}:0] {name}_default;", data - 1));
        text.line(format!("initial {name}_default = {};", self.packed(&self.table.default)));
        text.line(format!("wire {name}_sets = {ctl}.valid && {ctl}.write && {ctl}.target == 8'd{target}"));
        text.line(format!("  && {ctl}.index == 32'hffffffff;"));
        text.line(format!("always_ff @(posedge clk) if ({name}_sets) {name}_default <= {ctl}.data[{}:0];", data - 1));
    }

    fn unpack(&self, text: &mut Text, from: &str, late: bool) {
        let (name, layout) = (self.name, self.layout);
        let (action, args) = (layout.action_bits, layout.args_bits);
        if action > 0 {
            text.line(format!("{name}_action = {from}[{}:0];", action - 1));
        }
        if args > 0 {
            text.line(format!("{name}_args = {from}[{}:{action}];", action + args - 1));
        }
        if late && action + args == 0 {
            text.line(";");
        }
    }

    /// Assigns an action and its data.
    fn call(&self, text: &mut Text, call: &ActionCall) {
        let (name, layout) = (self.name, self.layout);
        if layout.action_bits > 0 {
            let value = number(layout.number(call.action) as u128, layout.action_bits);
            text.line(format!("{name}_action = {value}; // {}", self.program.actions[call.action].name));
        }
        if layout.args_bits > 0 {
            text.line(format!("{name}_args = {};", self.args(call)));
        }
    }

    /// Nothing, for the entry that wins to join.
    fn clear(&self, text: &mut Text) {
        let layout = self.layout;
        for (ending, bits) in [("action", layout.action_bits), ("args", layout.args_bits)] {
            if bits > 0 {
                text.line(format!("{}_{ending} = '0;", self.name));
            }
        }
    }

    /// Joins an action and its data to what is nothing for all entries but one.
    fn join(&self, text: &mut Text, call: &ActionCall) {
        let (name, layout) = (self.name, self.layout);
        if layout.action_bits > 0 {
            let value = number(layout.number(call.action) as u128, layout.action_bits);
            text.line(format!("{name}_action = {name}_action | {value};"));
        }
        if layout.args_bits > 0 {
            text.line(format!("{name}_args = {name}_args | {};", self.args(call)));
        }
    }

    fn args(&self, call: &ActionCall) -> String {
        let parts = packed_args(self.program, call);
        let bits: u32 = parts.iter().map(|p| p.width).sum();
        let list: Vec<String> = parts.iter().rev().map(|p| number(p.value, p.width)).collect();
        match list.len() {
            0 => "'0".into(),
            1 => fit(&list[0], bits, self.layout.args_bits),
            _ => fit(&format!("{{{}}}", list.join(", ")), bits, self.layout.args_bits),
        }
    }

    /// An action with its data, as an entry holds them.
    fn packed(&self, call: &ActionCall) -> String {
        let layout = self.layout;
        let action = number(layout.number(call.action) as u128, layout.action_bits.max(1));
        match (layout.action_bits, layout.args_bits) {
            (0, 0) => "1'b0".into(),
            (_, 0) => action,
            (0, _) => self.args(call),
            (_, bits) if packed_args(self.program, call).is_empty() => format!("{{{bits}'d0, {action}}}"),
            _ => format!("{{{}, {action}}}", self.args(call)),
        }
    }
}

/// What an entry asks of a key; nothing, where any value does.
pub(super) fn matches(m: &Match, key: &str, width: u32) -> Option<String> {
    let full = mask(width);
    match *m {
        Match::Mask(_, 0) => None,
        Match::Mask(value, bits) if bits & full == full => Some(format!("{key} == {}", number(value & full, width))),
        Match::Mask(value, bits) => {
            Some(format!("({key} & {}) == {}", number(bits & full, width), number(value & bits & full, width)))
        }
        Match::Range(low, high) => {
            Some(format!("{key} >= {} && {key} <= {}", number(low, width), number(high.min(full), width)))
        }
    }
}

/// Whether a packet can have the keys of both entries. Where it is not clear, it can.
fn meet(a: &[Match], b: &[Match], widths: &[u32]) -> bool {
    let apart = |((a, b), width): ((&Match, &Match), &u32)| match (*a, *b) {
        (Match::Mask(a, bits), Match::Mask(b, others)) => (a ^ b) & bits & others & mask(*width) != 0,
        (Match::Range(low, high), Match::Range(from, to)) => high < from || to < low,
        _ => false,
    };
    !a.iter().zip(b).zip(widths).any(apart)
}
