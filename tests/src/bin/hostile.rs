//! An application that keeps no rule, for the tests of what it may not reach: `hostile ATTACK SOCKET HOST ECHO_ADDRESS
//! ECHO_PORT SECONDS SEED`, and of verbs: `hostile verbs ATTACK SOCKET HOST PEER_HOST FORGER SECONDS SEED`.
use std::process::ExitCode;
use tests::hostile::{Orders, run, verbs};

const USAGE: &str = "usage: hostile scribble|silent|greedy|replay|busy SOCKET HOST ECHO_ADDRESS ECHO_PORT SECONDS SEED
       hostile verbs scribble|forge|unmap|honest|target SOCKET HOST PEER_HOST FORGER SECONDS SEED";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let of_verbs = words.strip_prefix(&["verbs".to_string()]).and_then(orders_of_verbs);
    let of_streams = orders(&words).map(|(attack, orders)| run(attack, &orders));
    let Some(result) = of_verbs.map(|(attack, orders)| verbs::run(attack, &orders)).or(of_streams) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match result {
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

fn orders_of_verbs(words: &[String]) -> Option<(&str, verbs::Orders)> {
    let [attack, socket, host, peer, forger, seconds, seed] = words else { return None };
    let orders = verbs::Orders {
        socket: socket.into(),
        host: host.clone(),
        peer: peer.clone(),
        forger: forger.parse().ok()?,
        seconds: seconds.parse().ok()?,
        seed: seed.parse().ok()?,
    };
    Some((attack, orders))
}
