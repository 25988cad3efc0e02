//! Volumes that hosts serve and use, for `opentoe ls`, `stats` and `why`.
use crate::table::{Table, bold, cell, list, print_line, thousands};
use crate::units;
use serde_json::Value;

/// Most characters of a name, and of a file or socket.
const NAME: usize = 10;
const PATH: usize = 16;

/// Lists them, where there are some.
pub(crate) fn ls(answer: &Value) {
    for table in [served(list(answer, "volumes")), used(list(answer, "blocks"))] {
        if !table.is_empty() {
            print_line("");
            table.print();
        }
    }
}

fn name(value: &Value) -> String {
    cell(value).chars().take(NAME).collect()
}

/// The end of a path has most of its meaning.
fn path(value: &Value) -> String {
    let all = cell(value);
    let from = all.chars().count().saturating_sub(PATH);
    if from == 0 { all } else { all.chars().skip(from + 2).fold("..".into(), |short, next| format!("{short}{next}")) }
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or("-".into(), units::count)
}

fn served(volumes: &[Value]) -> Table {
    let mut table = Table::new(&["volume", "host", "size", "access", "clients", "file"]);
    for volume in volumes {
        let access = if volume["read_only"] == true { "read" } else { "write" };
        let clients = list(volume, "clients").len().to_string();
        let named = [name(&volume["name"]), name(&volume["host"]), bytes(&volume["bytes"])];
        table.row(named.into_iter().chain([access.into(), clients, path(&volume["file"])]));
    }
    table
}

/// Of the round-trip times the shortest; `waiting` are requests that have not ended.
fn used(blocks: &[Value]) -> Table {
    let mut table = Table::new(&["block", "host", "size", "state", "paths", "rtt", "waiting", "socket"]);
    for block in blocks {
        let all = list(block, "paths");
        let up = all.iter().filter(|path| path["state"] == "up").count();
        let rtt = all.iter().filter_map(|path| path["rtt_us"].as_u64()).min().unwrap_or(0);
        let named = [name(&block["volume"]), name(&block["host"]), bytes(&block["bytes"]), cell(&block["state"])];
        let figures = [format!("{up}/{}", all.len()), units::time(rtt), bytes(&block["in_flight"])];
        table.row(named.into_iter().chain(figures).chain([path(&block["socket"])]));
    }
    table
}

/// Counters of each volume and of each use, with its paths.
pub(crate) fn stats(answer: &Value) {
    for volume in list(answer, "volumes") {
        print_line(&bold(&format!("volume {} of host {}", cell(&volume["name"]), cell(&volume["host"]))));
        counters(volume, &["requests"]).print();
        let clients = list(volume, "clients");
        clients.iter().for_each(|client| print_line(&format!("{}: {}", cell(&client["address"]), session(client))));
        print_line("");
    }
    for block in list(answer, "blocks") {
        let title = ["volume", "host", "server", "state"].map(|key| cell(&block[key]));
        let [volume, host, server, state] = title;
        print_line(&bold(&format!("block {volume} of host {host}, from {server}: {state}")));
        counters(block, &["requests", "packets"]).print();
        paths(block).print();
        print_line("");
    }
}

fn session(client: &Value) -> String {
    let again = client["sent_again"].as_u64().unwrap_or(0);
    format!("it may {}; {} answers were sent again", cell(&client["access"]), thousands(again))
}

fn counters(of: &Value, groups: &[&str]) -> Table {
    let mut table = Table::new(&["of", "counter", "value"]);
    for group in groups {
        for (name, value) in of[*group].as_object().into_iter().flatten() {
            table.row([group.to_string(), name.clone(), thousands(value.as_u64().unwrap_or(0))]);
        }
    }
    table
}

fn paths(block: &Value) -> Table {
    let mut table = Table::new(&["path by port", "state", "rtt", "in flight", "window"]);
    for path in list(block, "paths") {
        let rtt = units::time(path["rtt_us"].as_u64().unwrap_or(0));
        let [port, state, in_flight, window] = ["port", "state", "in_flight", "window"].map(|key| cell(&path[key]));
        table.row([port, state, rtt, in_flight, window]);
    }
    table
}

/// What is wrong with volumes: how many sentences were printed.
pub(crate) fn why(answer: &Value) -> usize {
    let troubles = list(answer, "storage");
    for trouble in troubles {
        let [volume, host, sentence] = ["volume", "host", "sentence"].map(|key| cell(&trouble[key]));
        print_line(&format!("volume {volume} at host {host}: {sentence}"));
    }
    troubles.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volumes_fit_80_columns() {
        let path = json!({ "port": 65535, "state": "failed", "rtt_us": 9999, "in_flight": 256, "window": 256 });
        let long = "x".repeat(200);
        let volume = json!({ "name": long, "host": long, "bytes": 9_999_999_999_999u64, "read_only": false,
            "clients": [{}, {}], "file": long });
        let block = json!({ "volume": long, "host": long, "bytes": 9_999_999_999_999u64, "state": "nosession",
            "in_flight": 9999, "paths": [path], "socket": long });
        for table in [served(&[volume]), used(std::slice::from_ref(&block)), paths(&block)] {
            assert!(!table.is_empty() && table.widest() <= 80, "{}", table.widest());
        }
    }

    #[test]
    fn the_end_of_a_long_path_is_shown() {
        assert_eq!(path(&json!("/run/v.sock")), "/run/v.sock");
        let long = format!("/a{}/v.sock", "x".repeat(40));
        assert!(path(&json!(long)).ends_with("/v.sock") && path(&json!(long)).len() == PATH);
    }
}
