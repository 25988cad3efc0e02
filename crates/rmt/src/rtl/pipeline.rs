//! A half's package of types, and its top module.
use super::deparser::out_ports;
use super::map::Map;
use super::plan::Plan;
use super::text::{Text, logic};

/// The structs that travel.
pub(super) fn package(plan: &Plan, map: &Map) -> String {
    let half = plan.gress.name();
    let mut text = Text::default();
    text.line(format!("// What travels through {half}: between the stages, only what later ones read."));
    text.line(format!("package {half}_pkg;"));
    text.line(
        "// An operation of the control plane. It takes a packet's place, so all packets before it see what was,",
    );
    text.line("// and all behind it what is.");
    text.line("typedef struct packed {");
    text.line("logic valid;");
    text.line("logic write;");
    text.line("logic [7:0] target;");
    text.line("logic [31:0] index;");
    text.line(format!("logic [{}:0] data;", map.control_bits - 1));
    text.line("} control_t;");
    for (n, carried) in plan.carried.iter().enumerate() {
        text.line("typedef struct packed {");
        text.line("logic slot; // a packet is here");
        text.line("logic live; // and its parser accepted it");
        text.line("logic [15:0] rest; // where its payload begins");
        text.line("logic [8:0] port;");
        for id in &carried.fields {
            let name = &plan.program.field(*id).name;
            text.line(format!("{} {}; // {name}", logic(plan.width(*id)), plan.field(*id)));
        }
        for signal in &carried.signals {
            text.line(format!("logic {};", plan.signals[*signal].name));
        }
        text.line(format!("}} s{n}_t;"));
    }
    text.line("endpackage");
    text.text()
}

/// The half: parser, stages, deparser, one packet or one control operation a clock.
pub(super) fn top(plan: &Plan, map: &Map) -> String {
    let half = plan.gress.name();
    let mut text = Text::default();
    text.line(format!(
        "// {half}: one packet a clock, {} clocks later its headers leave. in_data are the first",
        map.latency
    ));
    text.line(format!(
        "// {} bytes of a packet, the first leftmost, zero behind its end; in_len is its length. What",
        map.in_bytes
    ));
    text.line("// leaves are the first out_head bytes of out_data and the packet from byte out_rest on.");
    text.line(format!("module {half} ("));
    let mut ports: Vec<String> = vec![
        "input  logic clk".into(),
        "input  logic rst".into(),
        "input  logic in_valid".into(),
        "output logic in_ready".into(),
        "input  logic [15:0] in_len".into(),
        format!("input  logic [{}:0] in_data", map.in_bytes * 8 - 1),
        "input  logic [8:0] in_port".into(),
        "input  logic [6:0] in_queue".into(),
        "input  logic [47:0] in_time".into(),
        "input  logic ctl_valid".into(),
        "input  logic ctl_write".into(),
        "input  logic [7:0] ctl_target".into(),
        "input  logic [31:0] ctl_index".into(),
        format!("input  logic [{}:0] ctl_data", map.control_bits - 1),
        "output logic ctl_done".into(),
        format!("output logic [{}:0] ctl_result", map.control_bits - 1),
    ];
    ports.extend(out_ports(map.out_bytes, &map.mirrors));
    text.ports(&ports);
    text.line("assign in_ready = !ctl_valid;");
    let count = plan.stages.len();
    text.line(format!("{half}_pkg::control_t c, {}, c_out;", names("c", count)));
    text.line("assign c = {ctl_valid, ctl_write, ctl_target, ctl_index, ctl_data};");
    (0..=count).for_each(|n| text.line(format!("{half}_pkg::s{n}_t s{n};")));
    text.line(format!("{half}_parser parser ("));
    let mut ports: Vec<String> = ["clk", "rst"].iter().map(|p| format!(".{p}({p})")).collect();
    ports.extend(["len", "data", "port", "queue", "time"].iter().map(|p| format!(".packet_{p}(in_{p})")));
    ports.push(".packet_valid(in_valid && in_ready)".into());
    ports.extend([".packet_ctl(c)".into(), ".out(s0)".into(), ".out_ctl(c0)".into()]);
    text.connect(&ports);
    for n in 0..count {
        text.line(format!("{half}_stage_{n} stage_{n} ("));
        text.connect(&[
            ".clk(clk)".into(),
            ".rst(rst)".into(),
            format!(".in(s{n})"),
            format!(".in_ctl(c{n})"),
            format!(".out(s{})", n + 1),
            format!(".out_ctl(c{})", n + 1),
        ]);
    }
    text.line(format!("{half}_deparser deparser ("));
    let mut ports = vec![
        ".clk(clk)".to_string(),
        ".rst(rst)".into(),
        format!(".in(s{count})"),
        format!(".in_ctl(c{count})"),
        ".out_ctl(c_out)".into(),
    ];
    for port in out_ports(map.out_bytes, &map.mirrors) {
        let name = port.rsplit(' ').next().unwrap_or_default().to_string();
        ports.push(format!(".{name}({name})"));
    }
    text.connect(&ports);
    text.line("assign ctl_done = c_out.valid;");
    text.line("assign ctl_result = c_out.data;");
    text.line("wire unused_bits = &{1'b0, c_out};");
    text.line("endmodule");
    text.text()
}

fn names(start: &str, count: usize) -> String {
    (0..=count).map(|n| format!("{start}{n}")).collect::<Vec<_>>().join(", ")
}
