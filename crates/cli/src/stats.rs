//! `opentoe stats`: what was counted.
use crate::arguments::StatsArguments;
use crate::functions;
use crate::locate;
use crate::ls::{full, list};
use crate::table::{Table, bold, cell, print_json, print_line, red, thousands};
use crate::units::several;
use crate::volumes;
use daemon::client;
use daemon::protocol::Question;
use serde_json::Value;

/// Shows counters of hosts, ports, engine modules and drops, or of one connection.
pub(crate) fn stats(arguments: &StatsArguments) -> Result<(), String> {
    if arguments.trace || !arguments.enable.is_empty() || !arguments.disable.is_empty() {
        return tracepoints(arguments);
    }
    let question = Question::Stats { host: arguments.host.clone(), flow: arguments.flow };
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let mut answer = client::ask(&socket, &question)?;
    if arguments.json {
        client::all_flows(&socket, &mut answer)?;
        print_json(&answer);
        return Ok(());
    }
    for host in list(&answer, "hosts") {
        match arguments.flow {
            Some(_) => list(host, "flows").iter().for_each(|flow| one_flow(host, flow, arguments.all)),
            None => one_host(host, arguments.all),
        }
    }
    list(&answer, "zeronics").iter().for_each(|host| one_zeronic(host, arguments.all));
    volumes::stats(&answer);
    if arguments.flow.is_none() {
        fabrics(&answer["fabrics"]);
    }
    Ok(())
}

/// What tracepoints counted, after some have been turned on or off.
fn tracepoints(arguments: &StatsArguments) -> Result<(), String> {
    let (host, enable, disable) = (arguments.host.clone(), arguments.enable.clone(), arguments.disable.clone());
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let answer = client::ask(&socket, &Question::Tracepoints { host, enable, disable })?;
    if arguments.json {
        print_json(&answer);
    } else {
        crate::trace::figures(&answer, arguments.all);
    }
    Ok(())
}

fn one_host(host: &Value, all: bool) {
    let mut counters = Counters::new(all);
    for (port, figures) in host["ports"].as_object().into_iter().flatten() {
        counters.add(port, figures);
    }
    counters.add("connections", &host["connections"]);
    counters.add("all connections", &host["connections"]["sums"]);
    counters.add("open connections", &host["totals"]);
    for (module, figures) in host["modules"].as_object().into_iter().flatten() {
        counters.add(module, figures);
    }
    counters.add("rdma", &host["rdma"]);
    counters.add("drops", &host["drops"]);
    print_line(&bold(&format!("host {}, on thread {}", cell(&host["name"]), cell(&host["thread"]))));
    counters.print();
    list(host, "contexts").iter().filter_map(full).for_each(|sentence| print_line(&red(&sentence)));
    functions::stats(host);
    print_line("");
}

/// A ZeroNIC host; of each connection, what of its payload was copied once more, and why.
fn one_zeronic(host: &Value, all: bool) {
    let mut counters = Counters::new(all);
    for of in ["port", "payload", "headers", "drops"] {
        counters.add(of, &host[of]);
    }
    print_line(&bold(&format!("zeronic {}", cell(&host["name"]))));
    counters.print();
    for connection in list(host, "connections") {
        print_line(&format!(
            "{} to {}: {}",
            cell(&connection["local"]),
            cell(&connection["remote"]),
            copies(connection)
        ));
    }
    print_line("");
}

fn copies(connection: &Value) -> String {
    let bytes = |key: &str| connection[key].as_u64().unwrap_or(0);
    if connection["has_line"] == false {
        return format!(
            "{} bytes received, {} sent, all copied: the flow table had no line left (placed_connections)",
            thousands(bytes("copied_in")),
            thousands(bytes("fetched"))
        );
    }
    let mut parts = vec![format!("{} bytes placed, {} sent", thousands(bytes("placed")), thousands(bytes("fetched")))];
    if bytes("deferred") > 0 {
        let deferred = thousands(bytes("deferred"));
        parts.push(format!("{deferred} came before a receive was posted, and were buffered meanwhile"));
    }
    if bytes("copied_out") > 0 {
        let copied = thousands(bytes("copied_out"));
        parts.push(format!("{copied} were copied into frames: the port, or their memory, takes no references"));
    }
    if bytes("kept") > 0 {
        parts.push(format!("{} wait for a receive", thousands(bytes("kept"))));
    }
    parts.join("; ")
}

fn one_flow(host: &Value, flow: &Value, all: bool) {
    print_line(&bold(&format!(
        "flow {} of host {}: {} to {}, {}",
        flow["flow"],
        cell(&host["name"]),
        cell(&flow["local"]),
        cell(&flow["remote"]),
        cell(&flow["state"])
    )));
    let mut table = Table::new(&["counter", "value"]);
    for key in ["pid", "congestion", "mss", "cwnd", "rate", "rtt_us", "rto_us", "ecn", "last_drop"] {
        table.row([key.to_string(), cell(&flow[key])]);
    }
    let figures = flow["figures"].as_object().into_iter().flatten().filter(|(name, _)| *name != "last_drop");
    for (name, value) in figures.filter(|(_, value)| all || **value != 0) {
        table.row([name.clone(), cell(value)]);
    }
    table.print();
}

fn fabrics(fabrics: &Value) {
    for (name, fabric) in fabrics.as_object().into_iter().flatten() {
        print_line(&bold(&format!("fabric {name}")));
        let mut table = Table::new(&["member", "received", "bytes", "sent", "bytes", "waiting", "drops"]);
        for member in list(fabric, "members") {
            let drops: Vec<String> =
                list(member, "drops").iter().map(|drop| format!("{} {}", cell(&drop[0]), drop[1])).collect();
            let numbers = ["rx_frames", "rx_bytes", "tx_frames", "tx_bytes", "waiting_bytes"];
            let numbers = numbers.map(|key| thousands(member[key].as_u64().unwrap_or(0)));
            let drops = if drops.is_empty() { "-".into() } else { drops.join(", ") };
            table.row([cell(&member["name"])].into_iter().chain(numbers).chain([drops]));
        }
        table.print();
    }
}

/// A table of counters; of those that are 0 only the number, unless all are wanted.
struct Counters {
    table: Table,
    all: bool,
    zeros: usize,
}

impl Counters {
    fn new(all: bool) -> Counters {
        Counters { table: Table::new(&["of", "counter", "value"]), all, zeros: 0 }
    }

    /// Adds those of a part that are numbers.
    fn add(&mut self, of: &str, values: &Value) {
        for (name, value) in values.as_object().into_iter().flatten() {
            match value.as_u64() {
                Some(0) if !self.all => self.zeros += 1,
                Some(value) => self.table.row([of.to_string(), name.clone(), thousands(value)]),
                None => {}
            }
        }
    }

    fn print(&self) {
        if !self.table.is_empty() {
            self.table.print();
        }
        if self.zeros > 0 {
            print_line(&format!("and {} that are 0: --all shows them", several(self.zeros, "counter")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn zeros_are_counted_or_shown() {
        let values = json!({ "rx": 5, "tx": 0, "name": "x", "inner": { "a": 1 } });
        let (mut few, mut all) = (Counters::new(false), Counters::new(true));
        few.add("port", &values);
        all.add("port", &values);
        assert_eq!((few.zeros, few.table.len(), all.zeros, all.table.len()), (1, 1, 0, 2));
        few.add("nothing", &Value::Null);
        assert_eq!(few.table.len(), 1);
    }
}
