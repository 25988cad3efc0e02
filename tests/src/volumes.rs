//! Programs that have a volume's blocks in their own memory (`toe_volume_*`, docs/SOLAR.md), over a network of their
//! own that loses, doubles, reorders and damages packets.
use crate::cases::{Bench, LARGE, app};
use crate::report::Outcome;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The volume, and the host that uses it.
const VOLUME: &str = "blocks";
const USER: &str = "volume-user";
/// Bytes of the volume.
const SIZE: u64 = 64 << 20;

/// The daemon's configuration of both hosts, with the volume's file and socket in this folder.
pub(crate) fn configuration(folder: &Path) -> String {
    let [file, socket] = ["volume", "volume.sock"].map(|name| folder.join(name));
    let (network, seed) = ("storage", std::process::id());
    let mut text = format!(
        "[[fabric]]\nname = {network:?}\nmtu = 9000\nloss = 0.01\nreorder = 0.01\nduplicate = 0.005\ncorrupt = 0.005\n\
         seed = {seed}\n"
    );
    for (name, last) in [("volume-server", 1), (USER, 2)] {
        text += &format!("[[host]]\nname = {name:?}\naddress = \"10.80.0.{last}\"\n");
        text += &format!("port = {{ kind = \"fabric\", fabric = {network:?} }}\n");
    }
    text += &format!("[[volume]]\nname = {VOLUME:?}\nhost = \"volume-server\"\nfile = {file:?}\nsize = {SIZE}\n");
    text + &format!("[[block]]\nvolume = {VOLUME:?}\nhost = {USER:?}\nserver = \"10.80.0.1\"\nsocket = {socket:?}\n")
}

fn copy(bench: &Bench, way: &str, file: &str) -> Result<Command, String> {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let mut command = daemon.command(&bench.lab.far, USER, &app("volume_copy"));
    command.args([way, VOLUME, file]);
    Ok(command)
}

/// A file to a volume and back, also after a program was killed in the middle of its requests.
pub(crate) fn file(bench: &Bench) -> Outcome {
    let failed = |error: std::io::Error| error.to_string();
    let [part, back] = ["volume-in", "volume-out"].map(|name| bench.session.dir().join(name));
    let [from, to] = [&part, &back].map(|path| path.display().to_string());
    let mut content = Vec::new();
    File::open(bench.files.path(LARGE)).and_then(|file| file.take(SIZE).read_to_end(&mut content)).map_err(failed)?;
    fs::write(&part, &content).map_err(failed)?;
    for round in 0..2 {
        bench.session.run(copy(bench, "in", &from)?)?;
        bench.session.run(copy(bench, "out", &to)?)?;
        if fs::read(&back).map_err(failed)? != content {
            return Err("other bytes came back".into());
        }
        if round == 0 {
            let killed = bench.session.spawn(copy(bench, "in", &from)?)?;
            std::thread::sleep(Duration::from_millis(100));
            drop(killed);
        }
    }
    Ok(format!("{} MiB each way, equal, also after a program was killed", SIZE >> 20))
}
