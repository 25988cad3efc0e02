//! Views of volumes of a real `toed`: servers and clients, what was read and written, and what is wrong.
mod common;

use common::Toed;
use common::application::until;
use common::store::{BLOCK, EIO, Store, WIDE, bytes, hosts};
use daemon::protocol::Question;
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;

fn stats(toed: &Toed) -> Value {
    toed.ask(&Question::Stats { host: None, flow: None })
}

fn troubles(toed: &Toed) -> String {
    toed.ask(&Question::Drops)["storage"].to_string()
}

#[test]
fn volumes_and_their_use_are_shown_with_what_passed() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 65536") + &store.block("v", "c", "v.sock", "");
    let toed = Toed::start(&(hosts(WIDE) + &sections));
    let mut nbd = store.open("v.sock");
    let content = bytes(1, 65536);
    nbd.write(0, &content).unwrap();
    assert!(nbd.read(0, 8192).unwrap() == content[..8192]);
    let answer = toed.ask(&Question::Ls);
    let (volume, block) = (&answer["volumes"][0], &answer["blocks"][0]);
    assert_eq!((&volume["name"], &volume["host"], &volume["bytes"]), (&json!("v"), &json!("s"), &json!(65536)));
    assert_eq!(
        (&volume["clients"][0]["address"], &volume["clients"][0]["access"]),
        (&json!("10.0.0.2"), &json!("write"))
    );
    assert_eq!((&block["state"], &block["bytes"], &block["programs"]), (&json!("open"), &json!(65536), &json!(1)));
    let paths = block["paths"].as_array().unwrap();
    assert!(paths.len() == 4 && paths.iter().all(|path| path["state"] == "up"), "{paths:?}");
    assert!(paths.iter().any(|path| path["rtt_us"].as_u64().is_some_and(|rtt| rtt > 0)), "{paths:?}");
    let answer = stats(&toed);
    let served = &answer["volumes"][0]["requests"];
    // Eight blocks of the read may come in any packets: what counts is blocks.
    let of_blocks = [("writes", 16), ("written_bytes", 65536), ("reads", 2), ("read_bytes", 8192)];
    of_blocks.iter().for_each(|(key, value)| assert_eq!(served[key], *value, "{key} of {served}"));
    let used = &answer["blocks"][0]["requests"];
    let of_requests = [("writes", 1), ("written_bytes", 65536), ("reads", 1), ("read_bytes", 8192), ("failed", 0)];
    of_requests.iter().for_each(|(key, value)| assert_eq!(used[key], *value, "{key} of {used}"));
    assert_eq!(troubles(&toed), "[]");
    // Only of the host that is asked for.
    let of_user = toed.ask(&Question::Stats { host: Some("c".into()), flow: None });
    assert_eq!((&of_user["volumes"], of_user["blocks"].as_array().unwrap().len()), (&json!([]), 1));
}

#[test]
fn damaged_blocks_and_servers_that_do_not_answer_are_named() {
    let store = Store::new();
    let sections = [
        store.volume("v", "s", "size = 65536"),
        store.block("v", "c", "v.sock", ""),
        store.block("none", "c", "none.sock", ""),
        store.block("v", "d", "gone.sock", "").replace("10.0.0.1", "10.0.0.9"),
    ];
    let toed = Toed::start(&(hosts(WIDE) + &sections.concat()));
    let mut nbd = store.open("v.sock");
    nbd.write(0, &bytes(1, 65536)).unwrap();
    File::options().write(true).open(store.path("v")).unwrap().write_all_at(b"damage", 5 * BLOCK as u64).unwrap();
    assert_eq!(nbd.read(5 * BLOCK as u64, BLOCK as u32), Err(EIO));
    let served = &stats(&toed)["volumes"][0]["requests"];
    assert_eq!((&served["checksum_errors"], &served["failed"]), (&json!(1), &json!(1)));
    let wanted = [
        "has other bytes than were written (reads that failed with EIO: 1)",
        "it has no volume of this name",
        "10.0.0.9 has not answered",
    ];
    until("all sentences", || wanted.iter().all(|sentence| troubles(&toed).contains(sentence)));
}
