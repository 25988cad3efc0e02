//! Registers of a running P4 program, as the management socket of a real `toed` shows and sets them.
mod common;

use common::Toed;
use daemon::client::ask;
use daemon::protocol::{Question, RegisterWish};
use serde_json::{Value, json};

const CONFIGURATION: &str = "log = \"warn\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nengine = \"laminar\"\n\
                             max_flows = 64\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\n";

fn question(host: &str, wish: RegisterWish) -> Question {
    Question::Registers { host: Some(host.into()), wish }
}

fn get(name: &str, index: Option<u32>) -> RegisterWish {
    RegisterWish::Get { name: name.into(), index }
}

fn set(name: &str, index: u32, words: &[u32]) -> RegisterWish {
    RegisterWish::Set { name: name.into(), index, words: words.into() }
}

#[test]
fn registers_are_read_and_written_by_the_names_of_the_program() {
    let mut toed = Toed::start(CONFIGURATION);
    let list = toed.ask(&question("a", RegisterWish::List));
    let registers = list["registers"].as_array().expect("a list");
    let named = |name: &str| registers.iter().find(|register| register["name"] == name).expect("the register");
    let window = named("transmit_window.tx_window");
    assert_eq!((&list["host"], &window["entries"]), (&json!("a"), &json!(64)));
    let words = window["words"].as_array().expect("words").len();
    let entry: Vec<u32> = (5..5 + words as u32).collect();
    toed.ask(&question("a", set("tx_window", 63, &entry)));
    let found = |index| toed.ask(&question("a", get("tx_window", index)))["entries"].clone();
    assert_eq!(found(None), json!([[63, entry]]), "the others are zero");
    assert_eq!(found(Some(0)), json!([[0, vec![0; words]]]), "one that is asked for is shown, too");
    assert!(toed.end().success());
}

#[test]
fn what_is_not_there_is_refused_in_a_sentence() {
    let toed = Toed::start(CONFIGURATION);
    let refused = |host: &str, wish| ask(&toed.socket(), &question(host, wish)).expect_err("refused");
    assert_eq!(refused("b", RegisterWish::List), "host b runs the flextoe engine, which runs no P4 program",);
    assert!(
        refused("a", get("tx_widnow", None))
            .starts_with("the program has no register `tx_widnow`, or several; it has ")
    );
    assert_eq!(
        refused("a", get("tx_window", Some(64))),
        "transmit_window.tx_window has 64 entries, counted from 0: no 64"
    );
    assert!(refused("a", set("tx_window", 0, &[1, 2, 3])).contains("words, not 3"));
    let several = ask(&toed.socket(), &Question::Registers { host: None, wish: RegisterWish::List });
    assert!(several.expect_err("two hosts").contains("name one with --host"));
    let answer: Value = toed.ask(&question("a", get("tx_window", None)));
    assert_eq!(answer["entries"], json!([]), "nothing has changed");
}
