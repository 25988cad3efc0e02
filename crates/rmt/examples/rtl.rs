//! Writes a program's SystemVerilog, as `opentoe p4 rtl` does: `rtl FILE DIR [NAME[=VALUE] ...]`.
use rmt::ir::Gress;
use std::path::Path;
use std::process::exit;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(folder)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: rtl FILE DIR [NAME[=VALUE] ...]");
        exit(2);
    };
    let defines: Vec<(String, String)> = arguments
        .map(|define| define.split_once('=').map_or((define.clone(), String::new()), |(n, v)| (n.into(), v.into())))
        .collect();
    let fail = |list: Vec<rmt::Diagnostic>| -> ! {
        list.iter().for_each(|problem| eprintln!("{problem}"));
        exit(1);
    };
    let loaded = rmt::load(Path::new(&file), &defines).unwrap_or_else(|list| fail(list));
    let half = |half| rmt::rtl::generate(&loaded, half, rmt::rtl::Timing::Split).unwrap_or_else(|list| fail(list));
    let halves = [half(Gress::Ingress), half(Gress::Egress)];
    let folder = Path::new(&folder);
    let written = halves.iter().try_for_each(|half| half.write(folder));
    if let Err(reason) = written.and_then(|()| rmt::rtl::Around::new(&halves).write(folder)) {
        eprintln!("{reason}");
        exit(1);
    }
}
