//! rsync: after the handshake two processes have the connection, and one reads while the other one writes.
use super::Bench;
use crate::report::Outcome;
use std::fs;
use std::path::Path;

/// Files in the tree, and bytes of each: many small ones, so that both processes are busy all the time.
const FILES: (usize, usize) = (400, 3000);

/// A tree of small files and one of 100 MB there and back, as the server's daemon and its client fork for it.
pub(super) fn tree(bench: &Bench) -> Outcome {
    let place = bench.session.dir().join(format!("rsync-{}", bench.port));
    let [source, served, back] = ["source", "served", "back"].map(|name| place.join(name));
    make_tree(&source).and_then(|()| fs::create_dir_all(&served)).map_err(|error| error.to_string())?;
    let configuration = place.join("rsyncd.conf");
    let text = format!("use chroot = no\nuid = 0\ngid = 0\n[tree]\npath = {}\nread only = no\n", served.display());
    fs::write(&configuration, text).map_err(|error| error.to_string())?;
    let arguments =
        ["--daemon", "--no-detach", "--port", &bench.port(), "--config", &configuration.display().to_string()];
    let _server = bench.server(bench.lab.on_server("rsync"), &arguments)?;
    let remote = format!("rsync://{}:{}/tree/", bench.authority(), bench.port);
    let local = |path: &Path| format!("{}/", path.display());
    let large = bench.files.path(super::LARGE);
    bench.client("rsync", &["-a", &local(&source), &large, &remote])?;
    bench.client("rsync", &["-a", &remote, &local(&back)])?;
    bench.files.expect(super::LARGE, &bench.session.run(digest(&back.join(super::LARGE)))?)?;
    fs::remove_file(back.join(super::LARGE)).map_err(|error| error.to_string())?;
    let mut compare = std::process::Command::new("diff");
    compare.arg("-r").args([&source, &back]);
    bench.session.run(compare)?;
    fs::remove_dir_all(&place).map_err(|error| error.to_string())?;
    Ok(format!("{} files and 100 MB there and back, compared", FILES.0))
}

fn make_tree(source: &Path) -> std::io::Result<()> {
    for number in 0..FILES.0 {
        let folder = source.join(format!("{}", number % 20));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{number}")), [number as u8].repeat(FILES.1 + number))?;
    }
    Ok(())
}

fn digest(path: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("sha256sum");
    command.arg(path);
    command
}
