//! Connections of `toe_comm_*`, for `opentoe why PID`: how their bytes came to the program's memory and left it, and
//! why so (docs/ZERONIC.md).
use crate::ls::list;
use crate::table::{cell, print_line};
use crate::units::several;
use serde_json::{Value, json};

/// Those of a process on all ZeroNIC hosts, as `opentoe ls` has them, each with its host. None where the process is no
/// program of any.
pub(crate) fn of_process(inventory: &Value, pid: i32) -> Option<Vec<Value>> {
    let is_its = |of: &&Value| of["pid"].as_i64() == Some(pid.into());
    let hosts = list(inventory, "zeronics");
    hosts.iter().flat_map(|host| list(host, "programs")).find(is_its)?;
    let connections = hosts.iter().flat_map(|host| {
        let with_host = |connection: &Value| {
            let mut connection = connection.clone();
            connection["zeronic"] = json!(host["name"]);
            connection
        };
        list(host, "connections").iter().filter(is_its).map(with_host)
    });
    Some(connections.collect())
}

/// One of them in sentences.
pub(crate) fn explain(connection: &Value) {
    let [number, host, local, remote, carries] =
        ["connection", "zeronic", "local", "remote", "carries"].map(|key| cell(&connection[key]));
    print_line(&format!("connection {number} of {host}: {local} to {remote}, {carries}"));
    let lines = [received(connection), waiting(connection), sent(connection)];
    lines.into_iter().flatten().for_each(|line| print_line(&line));
}

fn figure(connection: &Value, name: &str) -> u64 {
    connection[name].as_u64().unwrap_or(0)
}

fn received(connection: &Value) -> Option<String> {
    let of = |name| figure(connection, name);
    if connection["has_line"] == false {
        let bytes = several(of("copied_in"), "byte");
        return Some(format!(
            "  received: {bytes}, all copied out of the transport's buffer, for the flow table had no line left \
             (placed_connections)"
        ));
    }
    let (placed, deferred) = (of("placed"), of("deferred"));
    let bytes = several(placed, "byte");
    match (placed, deferred) {
        (0, _) => None,
        (_, 0) => Some(format!("  received: {bytes}, placed in the memory of receives as they came")),
        _ => Some(format!(
            "  received: {bytes}, placed in the memory of receives; {deferred} of them were copied there later, for no \
             receive was posted when they came"
        )),
    }
}

fn waiting(connection: &Value) -> Option<String> {
    let kept = figure(connection, "kept");
    let verb = if kept == 1 { "waits" } else { "wait" };
    (kept > 0).then(|| format!("  {} {verb} for a receive", several(kept, "byte")))
}

fn sent(connection: &Value) -> Option<String> {
    let (fetched, copied) = (figure(connection, "fetched"), figure(connection, "copied_out"));
    let bytes = several(fetched, "byte");
    match (fetched, copied) {
        (0, _) => None,
        (_, 0) => Some(format!("  sent: {bytes} by reference, what was sent again included")),
        _ if connection["has_line"] == false => {
            Some(format!("  sent: {bytes}, copied into the transport's buffer, for the flow table had no line left"))
        }
        _ => Some(format!(
            "  sent: {bytes}, what was sent again included; {copied} of them were copied: the wire takes no references, \
             the memory is a device's or another process', or too few bytes lay in a row"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_those_of_the_process() {
        let connection = |pid: u32| json!({ "connection": 3, "pid": pid });
        let programs = [json!({ "pid": 7 }), json!({ "pid": 8 })];
        let host = json!({ "name": "b", "programs": programs, "connections": [connection(7), connection(9)] });
        let inventory = json!({ "zeronics": [host] });
        let expected = json!({ "connection": 3, "pid": 7, "zeronic": "b" });
        assert_eq!(of_process(&inventory, 7), Some(vec![expected]));
        assert_eq!((of_process(&inventory, 8), of_process(&inventory, 9)), (Some(Vec::new()), None));
    }

    #[test]
    fn ways_of_bytes_have_their_reasons() {
        let placed = json!({ "has_line": true, "placed": 9, "deferred": 0, "fetched": 5, "copied_out": 0, "kept": 0 });
        assert!(received(&placed).unwrap().ends_with("9 bytes, placed in the memory of receives as they came"));
        assert!(sent(&placed).unwrap().contains("5 bytes by reference") && waiting(&placed).is_none());
        let late = json!({ "has_line": true, "placed": 9, "deferred": 4, "fetched": 5, "copied_out": 2, "kept": 1 });
        assert!(received(&late).unwrap().contains("4 of them were copied there later, for no receive was posted"));
        assert!(sent(&late).unwrap().contains("2 of them were copied: the wire takes no references"));
        assert_eq!(waiting(&late).unwrap(), "  1 byte waits for a receive");
        let copied = json!({ "has_line": false, "copied_in": 6, "fetched": 6, "copied_out": 6 });
        assert!(received(&copied).unwrap().contains("6 bytes, all copied out of the transport's buffer"));
        assert!(sent(&copied).unwrap().ends_with("for the flow table had no line left"));
        let idle = json!({ "has_line": true, "placed": 0, "fetched": 0 });
        assert_eq!((received(&idle), sent(&idle)), (None, None));
    }
}
