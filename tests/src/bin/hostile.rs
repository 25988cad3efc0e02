//! An application that keeps no rule, for the tests of what it may not reach: `hostile ATTACK SOCKET HOST ECHO_ADDRESS
//! ECHO_PORT SECONDS SEED`.
use std::process::ExitCode;
use tests::hostile::{Orders, run};

const USAGE: &str = "usage: hostile scribble|silent|greedy|replay|busy SOCKET HOST ECHO_ADDRESS ECHO_PORT SECONDS SEED";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((attack, orders)) = orders(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(attack, &orders) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(sentence) => {
            eprintln!("hostile: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn orders(words: &[String]) -> Option<(&str, Orders)> {
    let [attack, socket, host, address, port, seconds, seed] = words else { return None };
    let orders = Orders {
        socket: socket.into(),
        host: host.clone(),
        echo: (address.parse().ok()?, port.parse().ok()?),
        seconds: seconds.parse().ok()?,
        seed: seed.parse().ok()?,
    };
    Some((attack, orders))
}
