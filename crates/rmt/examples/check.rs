//! `cargo run -p rmt --example check FILE.p4 [NAME[=VALUE]...]`: checks a program and prints what it uses.
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(file) = args.next() else {
        eprintln!("usage: check FILE.p4 [NAME[=VALUE]...]");
        return ExitCode::from(2);
    };
    let defines: Vec<(String, String)> = args
        .map(|a| match a.split_once('=') {
            Some((name, value)) => (name.to_string(), value.to_string()),
            None => (a, String::new()),
        })
        .collect();
    match rmt::load(file.as_ref(), &defines) {
        Ok(l) => {
            l.report.warnings.iter().for_each(|w| eprintln!("{w}"));
            print!("{}", l.report);
            ExitCode::SUCCESS
        }
        Err(list) => {
            list.iter().for_each(|d| eprintln!("{d}"));
            ExitCode::FAILURE
        }
    }
}
