//! `toe ls`: what there is.
use crate::arguments::LsArguments;
use crate::locate;
use crate::table::{Table, bold, cell, red, say, say_json};
use daemon::client;
use daemon::protocol::Question;
use serde_json::Value;

/// Most characters of a command line.
const COMMAND: usize = 60;

/// Lists hosts, attached programs, connections and listeners.
pub fn ls(arguments: &LsArguments) -> Result<(), String> {
    let socket = locate::daemon(arguments.daemon.socket.as_deref());
    let mut answer = client::ask(&socket, &Question::Ls)?;
    if arguments.all || arguments.json {
        client::all_flows(&socket, &mut answer)?;
    }
    if arguments.json {
        say_json(&answer);
        return Ok(());
    }
    let mut hosts =
        Table::new(&["host", "address", "engine", "port", "programs", "listeners", "connections", "time-wait"]);
    for host in list(&answer, "hosts") {
        let count = |key| list(host, key).len().to_string();
        let address = format!("{}/{}", cell(&host["address"]), host["prefix_len"]);
        let [name, engine, port] = ["name", "engine", "port"].map(|key| cell(&host[key]));
        let waiting = states(host).filter(|(state, _)| *state == TIME_WAIT).map(|(_, count)| count).sum::<u64>();
        let counts = [count("contexts"), count("listeners"), open(host).to_string(), waiting.to_string()];
        hosts.row([name, address, engine, port].into_iter().chain(counts));
    }
    hosts.print();
    for host in list(&answer, "hosts") {
        inventory(host, arguments.all);
    }
    Ok(())
}

/// The state of a connection that is over and only waits for old duplicates to die out.
const TIME_WAIT: &str = "TIME-WAIT";

/// How many connections a host has in each state.
fn states(host: &Value) -> impl Iterator<Item = (&str, u64)> {
    let states = host["states"].as_object().into_iter().flatten();
    states.map(|(state, count)| (state.as_str(), count.as_u64().unwrap_or(0)))
}

/// Connections that are not over.
fn open(host: &Value) -> u64 {
    states(host).filter(|(state, _)| *state != TIME_WAIT).map(|(_, count)| count).sum()
}

fn inventory(host: &Value, all: bool) {
    if let Some(failure) = host["failure"].as_str() {
        say(&red(&format!("\nhost {}: {failure}", cell(&host["name"]))));
    }
    let mut programs = Table::new(&["context", "pid", "user", "slots", "program"]);
    for context in list(host, "contexts") {
        let slots = format!("{}/{}", context["slots_used"], context["slots"]);
        let gone = if context["alive"] == true { "" } else { "(ended) " };
        let command: String = cell(&context["command"]).chars().take(COMMAND).collect();
        let [number, pid, uid] = ["context", "pid", "uid"].map(|key| cell(&context[key]));
        programs.row([number, pid, uid, slots, format!("{gone}{command}")]);
    }
    section(host, "programs", &programs);
    let mut listeners = Table::new(&["listener", "backlog", "half-open", "waiting", "pids"]);
    for listener in list(host, "listeners") {
        let pids: Vec<String> = list(listener, "pids").iter().map(cell).collect();
        let [backlog, half_open, waiting] = ["backlog", "half_open", "waiting"].map(|key| cell(&listener[key]));
        let local = format!("{}:{}", cell(&listener["address"]), listener["port"]);
        listeners.row([local, backlog, half_open, waiting, pids.join(" ")]);
    }
    section(host, "listeners", &listeners);
    let mut flows =
        Table::new(&["flow", "local", "remote", "state", "pid", "received", "sent", "rtt us", "cwnd", "policy"]);
    let shown = list(host, "flows").iter().filter(|flow| all || flow["state"] != TIME_WAIT);
    let count = shown.clone().count() as u64;
    for flow in shown {
        let figures = &flow["figures"];
        let own = ["flow", "local", "remote", "state", "pid"].map(|key| cell(&flow[key]));
        let counts = [&figures["rx_bytes"], &figures["tx_bytes"], &flow["rtt_us"], &flow["cwnd"], &flow["congestion"]];
        flows.row(own.into_iter().chain(counts.map(cell)));
    }
    section(host, "connections", &flows);
    if !host["next"].is_null() && open(host) > count {
        say(&format!("and {} more: toe ls --all shows them", open(host) - count));
    }
}

fn section(host: &Value, what: &str, table: &Table) {
    if !table.is_empty() {
        say(&format!("\n{}", bold(&format!("{} of host {}", what, cell(&host["name"])))));
        table.print();
    }
}

/// A list in an answer; empty where there is none.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}
