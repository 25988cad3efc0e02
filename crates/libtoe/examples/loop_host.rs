//! The tests' stand-in for the daemon, to run programs by hand: `loop_host PATH`, then
//! `TOE_SOCKET=PATH LD_PRELOAD=libtoe.so program` in as many shells as you like. All share the host 10.99.0.1.
#[path = "../tests/loop_host/mod.rs"]
mod loop_host;

fn main() {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: loop_host PATH");
        std::process::exit(2);
    };
    let host = loop_host::LoopHost::start(path.as_ref());
    println!("{} at {}", loop_host::ADDRESS, host.path().display());
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}
