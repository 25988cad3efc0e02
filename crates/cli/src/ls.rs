//! `opentoe ls`: what there is.
use crate::arguments::LsArguments;
use crate::functions;
use crate::locate;
pub(crate) use crate::table::list;
use crate::table::{Table, bold, cell, print_json, print_line, red};
use crate::units;
use crate::volumes;
use daemon::client;
use daemon::config::Backend;
use daemon::protocol::{Question, no_host};
use serde_json::Value;

/// Most characters of a command line, so that a row fits 80 columns.
const COMMAND: usize = 42;
/// And of process numbers.
const PIDS: usize = 28;

/// Lists hosts, attached programs, connections and listeners.
pub(crate) fn ls(arguments: &LsArguments) -> Result<(), String> {
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let mut answer = only(client::ask(&socket, &Question::Ls)?, arguments.host.as_deref())?;
    if arguments.all || arguments.json {
        client::all_flows(&socket, &mut answer)?;
    }
    if arguments.json {
        print_json(&answer);
        return Ok(());
    }
    failures(&answer);
    let (hosts, zeronics) = (hosts(&answer), list(&answer, "zeronics"));
    if !hosts.is_empty() || zeronics.is_empty() {
        hosts.print();
    }
    for host in list(&answer, "hosts") {
        inventory(host, arguments.all);
    }
    if !zeronics.is_empty() {
        if !hosts.is_empty() {
            print_line("");
        }
        zeronic_hosts(zeronics).print();
    }
    volumes::ls(&answer);
    for host in zeronics {
        section(host, "programs", &zeronic_programs(host));
        section(host, "connections", &zeronic_connections(host));
    }
    Ok(())
}

/// An answer with what belongs to one host, where one is named; what belongs to no host stays.
pub(crate) fn only(mut answer: Value, host: Option<&str>) -> Result<Value, String> {
    let Some(wanted) = host else { return Ok(answer) };
    let places = ["hosts", "zeronics"].into_iter().flat_map(|key| list(&answer, key));
    let names: Vec<&str> = places.filter_map(|host| host["name"].as_str()).collect();
    if !names.contains(&wanted) {
        return Err(no_host(wanted, &names));
    }
    let of_hosts = ["volumes", "blocks", "storage", "offload"].map(|part| (part, "host"));
    let parts = [("hosts", "name"), ("zeronics", "name")].into_iter().chain(of_hosts);
    for (part, name) in parts {
        if let Some(entries) = answer.get_mut(part).and_then(Value::as_array_mut) {
            entries.retain(|entry| entry[name] == wanted);
        }
    }
    Ok(answer)
}

/// Prints sentences about networks that are gone for good; returns how many there are.
pub(crate) fn failures(answer: &Value) -> usize {
    let failures = list(answer, "failures");
    failures.iter().for_each(|failure| print_line(&red(&cell(failure))));
    failures.len()
}

/// Hosts for programs of `toe_comm_*`.
fn zeronic_hosts(hosts: &[Value]) -> Table {
    let mut table = Table::new(&["zeronic", "address", "transport", "programs", "ports", "open"]);
    for host in hosts {
        let address = format!("{}/{}", cell(&host["address"]), host["prefix_len"]);
        let ports: Vec<String> = list(host, "listeners").iter().map(cell).collect();
        let count = |key| list(host, key).len().to_string();
        let ports = if ports.is_empty() { "-".into() } else { few(&ports) };
        let named = [cell(&host["name"]), address, cell(&host["transport"])];
        table.row(named.into_iter().chain([count("programs"), ports, count("connections")]));
    }
    table
}

fn zeronic_programs(host: &Value) -> Table {
    let mut table = Table::new(&["pid", "connections", "program"]);
    for program in list(host, "programs") {
        let command = cell(&program["command"]).chars().take(COMMAND).collect();
        table.row([cell(&program["pid"]), cell(&program["connections"]), command]);
    }
    table
}

/// Bytes that were placed and handed out, and receives and sends that are under way.
fn zeronic_connections(host: &Value) -> Table {
    let mut table = Table::new(&["local", "remote", "pid", "placed", "sent", "receives", "sends"]);
    for connection in list(host, "connections") {
        let [local, remote, pid, receives, sends] =
            ["local", "remote", "pid", "receives", "sends"].map(|key| cell(&connection[key]));
        let port = local.rsplit_once(':').map_or(local.clone(), |(_, port)| format!(":{port}"));
        let bytes = |key: &str| units::count(connection[key].as_u64().unwrap_or(0));
        table.row([port, remote, pid, bytes("placed"), bytes("fetched"), receives, sends]);
    }
    table
}

fn hosts(answer: &Value) -> Table {
    let mut hosts = Table::new(&["host", "address", "engine", "port", "programs", "listeners", "open", "time-wait"]);
    for host in list(answer, "hosts") {
        let count = |key| list(host, key).len().to_string();
        let address = format!("{}/{}", cell(&host["address"]), host["prefix_len"]);
        let v6 = host["address6"].as_str().map(|v6| format!(" {v6}/{}", host["prefix_len6"])).unwrap_or_default();
        let address = address + &v6;
        let [name, mut engine, port] = ["name", "engine", "port"].map(|key| cell(&host[key]));
        if host["backend"] == Backend::Rtl.name() {
            engine += ", simulated RTL";
        }
        // A host's place in a fabric has its name.
        let port = port.strip_suffix(&format!(" {name}")).unwrap_or(&port).to_string();
        let waiting = states(host).filter(|(state, _)| *state == TIME_WAIT).map(|(_, count)| count).sum::<u64>();
        let counts = [count("contexts"), count("listeners"), open(host).to_string(), waiting.to_string()];
        hosts.row([name, address, engine, port].into_iter().chain(counts));
    }
    hosts
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
    section(host, "ports", &ports(host));
    section(host, "programs", &programs(host));
    list(host, "contexts").iter().filter_map(full).for_each(|sentence| print_line(&red(&sentence)));
    section(host, "RDMA programs", &rdma_programs(host));
    section(host, "queue pairs", &queue_pairs(host));
    section(host, "RDMA ports", &identifiers(host));
    section(host, "offload functions", &functions::ls(host));
    section(host, "listeners", &listeners(host));
    let flows: Vec<&Value> = list(host, "flows").iter().filter(|flow| all || flow["state"] != TIME_WAIT).collect();
    section(host, "connections", &connections(&flows));
    let more = open(host).saturating_sub(flows.len() as u64);
    if !host["next"].is_null() && more > 0 {
        print_line(&format!("and {more} more: opentoe ls --all shows them"));
    }
}

/// The ports of a host that has several: of one, the hosts' table has all.
fn ports(host: &Value) -> Table {
    let mut ports = Table::new(&["port", "address", "hardware address"]);
    for port in list(host, "ports").iter().filter(|_| list(host, "ports").len() > 1) {
        let [name, address, mac] = ["name", "address", "mac"].map(|key| cell(&port[key]));
        let v6 = port["address6"].as_str().map(|v6| format!(" {v6}")).unwrap_or_default();
        ports.row([name, address + &v6, mac]);
    }
    ports
}

fn programs(host: &Value) -> Table {
    let mut programs = Table::new(&["context", "pid", "user", "slots", "program"]);
    for context in list(host, "contexts") {
        let slots = format!("{}/{}", context["slots_used"], context["slots"]);
        let gone = if context["alive"] == true { "" } else { "(ended) " };
        let [number, pid, uid] = ["context", "pid", "uid"].map(|key| cell(&context[key]));
        let command = format!("{gone}{}", cell(&context["command"])).chars().take(COMMAND).collect();
        programs.row([number, pid, uid, slots, command]);
    }
    programs
}

/// The sentence about a program that can have no more connections.
pub(crate) fn full(context: &Value) -> Option<String> {
    let (used, slots) = (context["slots_used"].as_u64()?, context["slots"].as_u64()?);
    (used >= slots).then(|| {
        format!(
            "process {} uses all of its {slots} slots: new connections wait, and connect fails: ENOBUFS; close some, run \
             another process, or raise memory.slots of the host",
            cell(&context["pid"])
        )
    })
}

fn rdma_programs(host: &Value) -> Table {
    let mut programs = Table::new(&["device", "pid", "user", "queue pairs", "program"]);
    for program in list(&host["rdma"], "programs") {
        let [pid, uid, count] = ["pid", "uid", "qp_count"].map(|key| cell(&program[key]));
        let command = cell(&program["command"]).chars().take(COMMAND).collect();
        programs.row([cell(&host["rdma"]["device"]), pid, uid, count, command]);
    }
    programs
}

/// The first queue pairs of each program, as many as the daemon lists.
fn queue_pairs(host: &Value) -> Table {
    let mut table = Table::new(&["queue pair", "kind", "state", "pid", "peer", "its queue pair", "rate", "CNPs"]);
    for program in list(&host["rdma"], "programs") {
        for qp in list(program, "qps") {
            let [kind, state, peer] = ["kind", "state", "peer"].map(|key| cell(&qp[key]));
            let [own, remote] = ["number", "remote_qp"].map(|key| number(&qp[key]));
            let [rate, notified] = congestion(&qp["congestion"]);
            table.row([own, kind, state, cell(&program["pid"]), peer, remote, rate, notified]);
        }
    }
    table
}

/// Bits a second to which congestion limits a queue pair, and the notifications that it got: where its host has any
/// congestion control.
fn congestion(congestion: &Value) -> [String; 2] {
    let rate = match (congestion.is_null(), congestion["rate"].as_u64()) {
        (true, _) => "-".into(),
        (_, None) => "line".into(),
        (_, Some(rate)) => units::count(rate),
    };
    [rate, congestion["cnps_received"].as_u64().map_or("-".into(), units::count)]
}

/// The first identifiers of connection management of each program, as many as the daemon lists.
fn identifiers(host: &Value) -> Table {
    let mut table = Table::new(&["RDMA port", "state", "pid", "own address", "peer"]);
    for program in list(&host["rdma"], "programs") {
        for id in list(program, "ids") {
            let [space, state, local, remote] = ["space", "state", "local", "remote"].map(|key| cell(&id[key]));
            table.row([space, state, cell(&program["pid"]), local, remote]);
        }
    }
    table
}

/// A queue pair's number as other tools show it.
fn number(value: &Value) -> String {
    value.as_u64().map_or("-".into(), |number| format!("{number:#08x}"))
}

fn listeners(host: &Value) -> Table {
    let mut listeners = Table::new(&["listener", "backlog", "half-open", "waiting", "pids"]);
    for listener in list(host, "listeners") {
        let pids: Vec<String> = list(listener, "pids").iter().map(cell).collect();
        let [backlog, half_open, waiting] = ["backlog", "half_open", "waiting"].map(|key| cell(&listener[key]));
        let address = cell(&listener["address"]);
        // As RFC 3986 section 3.2.2 writes it.
        let address = if address.contains(':') { format!("[{address}]") } else { address };
        let local = format!("{address}:{}", listener["port"]);
        listeners.row([local, backlog, half_open, waiting, few(&pids)]);
    }
    listeners
}

/// As many as a row has room for.
fn few(pids: &[String]) -> String {
    let fits = |count: &usize| pids[..*count].join(" ").len() + 5 <= PIDS;
    match pids.join(" ") {
        all if all.len() <= PIDS => all,
        _ => {
            let shown = (0..pids.len()).rev().find(fits).unwrap_or(0);
            format!("{} +{}", pids[..shown].join(" "), pids.len() - shown)
        }
    }
}

/// Of the local end only the port: the address is the host's. The rest of what is known is in `opentoe stats --flow`
/// and in the JSON.
fn connections(flows: &[&Value]) -> Table {
    let mut table = Table::new(&["flow", "local", "remote", "state", "pid", "rx B", "tx B", "rtt"]);
    for flow in flows {
        let [number, local, remote, state, pid] =
            ["flow", "local", "remote", "state", "pid"].map(|key| cell(&flow[key]));
        let port = local.rsplit_once(':').map_or(local.clone(), |(_, port)| format!(":{port}"));
        let [rx, tx] =
            ["rx_bytes", "tx_bytes"].map(|key| flow["figures"][key].as_u64().map_or("-".into(), units::count));
        let rtt = units::time(flow["rtt_us"].as_u64().unwrap_or(0));
        table.row([number, port, remote, state, pid, rx, tx, rtt]);
    }
    table
}

fn section(host: &Value, what: &str, table: &Table) {
    if !table.is_empty() {
        print_line(&format!("\n{}", bold(&format!("{} of host {}", what, cell(&host["name"])))));
        table.print();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn queue_pairs_are_listed_under_their_program() {
        let qp = json!({ "number": 0x1234, "kind": "RC", "state": "RTS", "peer": "192.168.100.201", "remote_qp": 0xff_fffe,
            "congestion": { "rate": 4_999_000_000u64, "cnps_sent": 0, "cnps_received": 1_234_567 } });
        let fresh = json!({ "number": 2, "kind": "UD", "state": "RESET", "peer": null, "remote_qp": null });
        let program = json!({ "pid": 1_234_567, "uid": 1000, "qp_count": 2, "command": "x".repeat(100), "qps": [qp.clone(), fresh],
                "ids": [{ "space": "TCP", "state": "SIDR-REQ-SENT", "local": "192.168.100.200:61234",
                    "remote": "192.168.100.201:61234" }, { "space": "UDP", "state": "LISTEN", "local": null,
                    "remote": null }] });
        let host = json!({ "rdma": { "device": "toe0", "programs": [program] } });
        for table in [rdma_programs(&host), queue_pairs(&host), identifiers(&host)] {
            assert!(!table.is_empty() && table.widest() <= 80, "{}", table.widest());
        }
        assert_eq!(congestion(&qp["congestion"]), ["5.0G", "1.2M"]);
        assert_eq!(congestion(&json!({ "rate": null, "cnps_received": 0 })), ["line", "0"]);
        assert_eq!(congestion(&Value::Null), ["-", "-"]);
        assert_eq!((number(&json!(0x1234)), number(&Value::Null)), ("0x001234".into(), "-".to_string()));
        assert!(rdma_programs(&json!({ "rdma": null })).is_empty());
    }

    #[test]
    fn one_host_is_listed_without_what_belongs_to_others() {
        let answer = json!({ "version": "0.1.0", "hosts": [{ "name": "a" }, { "name": "b" }],
            "zeronics": [{ "name": "b-zeronic" }], "volumes": [{ "name": "v", "host": "a" }],
            "blocks": [{ "volume": "v", "host": "b" }], "failures": ["fabric lan: it is gone"] });
        assert_eq!(only(answer.clone(), None), Ok(answer.clone()));
        let expected = json!({ "version": "0.1.0", "hosts": [{ "name": "b" }], "zeronics": [], "volumes": [],
            "blocks": [{ "volume": "v", "host": "b" }], "failures": ["fabric lan: it is gone"] });
        assert_eq!(only(answer.clone(), Some("b")), Ok(expected));
        assert_eq!(list(&only(answer.clone(), Some("b-zeronic")).unwrap(), "zeronics").len(), 1);
        assert_eq!(only(answer, Some("c")), Err("this daemon has no host `c`; it has a, b, b-zeronic".into()));
    }

    #[test]
    fn full_slots_are_named() {
        assert_eq!(full(&json!({ "pid": 7, "slots_used": 4095, "slots": 4096 })), None);
        let sentence = full(&json!({ "pid": 7, "slots_used": 4096, "slots": 4096 })).unwrap();
        assert!(sentence.starts_with("process 7 uses all of its 4096 slots"));
    }

    #[test]
    fn zeronic_hosts_fit_80_columns() {
        let connection = json!({ "local": "192.168.100.200:44833", "remote": "192.168.100.201:61234", "pid": 1_234_567,
            "placed": 9_999_999_999_999u64, "fetched": 9_999_999_999_999u64, "receives": 8192, "sends": 8192 });
        let host = json!({ "name": "zero-server", "address": "192.168.100.200", "prefix_len": 24,
            "transport": "flextoe", "listeners": [61234, 61235, 61236], "connections": [connection],
            "programs": [{ "pid": 1_234_567, "connections": 256, "command": "x".repeat(100) }] });
        let hosts = zeronic_hosts(std::slice::from_ref(&host));
        for table in [hosts, zeronic_programs(&host), zeronic_connections(&host)] {
            assert!(!table.is_empty() && table.widest() <= 80, "{}", table.widest());
        }
    }

    #[test]
    fn everything_fits_80_columns() {
        let flow = json!({
            "flow": 65535, "local": "192.168.100.200:44833", "remote": "192.168.100.201:61234", "state": "ESTABLISHED",
            "pid": 1234567, "rtt_us": 1240, "figures": { "rx_bytes": 9_999_999_999_999u64, "tx_bytes": 1_234_567 },
        });
        let table = connections(&[&flow, &json!({ "flow": 1, "local": "10.0.0.1:80", "state": "SPLICED" })]);
        assert!(table.widest() <= 80, "{}", table.widest());
        let pids: Vec<u32> = (1_000_001..1_000_033).collect();
        let host = json!({
            "listeners": [{ "address": "192.168.100.200", "port": 61234, "backlog": 4096, "half_open": 4096,
                "waiting": 4096, "pids": pids }],
            "contexts": [{ "context": 255, "pid": 1234567, "uid": 65534, "slots_used": 4096, "slots": 32768,
                "command": "x".repeat(500) }],
        });
        let place = json!({ "name": "client10", "address": "10.77.0.111", "prefix_len": 16, "engine": "flextoe",
            "port": "fabric client10", "states": { "ESTABLISHED": 32768, "TIME-WAIT": 32768 } });
        let hosts = hosts(&json!({ "hosts": [place] }));
        assert!(hosts.widest() <= 80, "{}", hosts.widest());
        assert!(listeners(&host).widest() <= 80 && programs(&host).widest() <= 80);
        assert_eq!(few(&pids.iter().map(u32::to_string).collect::<Vec<_>>()), "1000001 1000002 1000003 +29");
        assert_eq!(few(&["1".into(), "2".into()]), "1 2");
    }
}
