//! Cost of extensions that a running daemon can load and unload: tracepoints, a capture, modules.
use crate::lab::FabricLab;
use crate::tools::Tools;
use clap::ValueEnum;
use daemon::protocol::{Capture, Question, Trace, Xdp};
use std::io::Read;
use std::net::Shutdown;
use std::thread::JoinHandle;

/// An extension of the data-path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Extension {
    /// All tracepoints are counted.
    Tracepoints,
    /// All tracepoints are streamed, as `opentoe trace` does, to a reader that does nothing with them.
    Stream,
    /// All frames are captured, whole, without a filter, for a reader that does nothing with them.
    Capture,
    /// `xdp/null.c` on received frames of both hosts.
    Null,
    /// `xdp/vlan_strip.c` at the server; the client's host puts the tags on (`xdp/vlan_push.c`).
    Vlan,
    /// The same, of which only the thread of the server's host is measured.
    Strip,
}

/// The network whose tag is put on and taken off.
const NETWORK: &str = r#"{"tag": 42}"#;

impl Extension {
    /// Its name on the command line and in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Extension::Tracepoints => "tracepoints",
            Extension::Stream => "stream",
            Extension::Capture => "capture",
            Extension::Null => "null",
            Extension::Vlan => "vlan",
            Extension::Strip => "strip",
        }
    }

    /// The thesis' ratio, where it has one (table 4.3).
    pub(super) fn published(name: &str) -> Option<f64> {
        let figures = [("tracepoints", 8.67), ("capture", 6.52), ("null", 10.87), ("vlan", 10.83), ("strip", 10.83)];
        figures.iter().find(|(known, _)| *known == name).map(|(_, mops)| mops / 11.35)
    }

    /// The host that has a thread to itself, where only that one is measured.
    pub(super) fn alone(self) -> Option<&'static str> {
        (self == Extension::Strip).then_some("server")
    }

    /// Puts it on.
    pub(super) fn put_on(self, tools: &Tools, lab: &FabricLab) -> Result<On, String> {
        let everything = Capture {
            host: None,
            flow: None,
            dropped: false,
            direction: None,
            count: None,
            snaplen: 0,
            filter: String::new(),
            // What libpcap makes of an empty filter: the whole frame, whatever it is.
            program: vec![(6, 0, 0, u32::MAX)],
        };
        match self {
            Extension::Tracepoints => {
                lab.daemon().ask(&tracepoints(true))?;
                Ok(On::Tracepoints)
            }
            Extension::Stream => read_on(lab, &Question::Trace(Trace::default())),
            Extension::Capture => read_on(lab, &Question::Capture(everything)),
            Extension::Null => {
                load(tools, lab, "server", "null")?;
                load(tools, lab, "client0", "null")?;
                Ok(On::Modules(vec![("server", "null"), ("client0", "null")]))
            }
            Extension::Vlan | Extension::Strip => {
                // In this order, so that no frame with a tag reaches a host that does not take it off.
                load(tools, lab, "server", "vlan_strip")?;
                load(tools, lab, "client0", "vlan_push")?;
                let [host, module, map] = ["client0", "vlan_push", "config"].map(String::from);
                let (key, value) = ("0".into(), NETWORK.into());
                lab.daemon().ask(&Question::Xdp(Xdp::Set { host: Some(host), module, map, key, value }))?;
                Ok(On::Modules(vec![("client0", "vlan_push"), ("server", "vlan_strip")]))
            }
        }
    }
}

/// An extension that is on, and what is needed to take it off.
pub(super) enum On {
    Tracepoints,
    /// Somebody reads what the daemon sends.
    Reader(std::os::unix::net::UnixStream, JoinHandle<u64>),
    /// Hosts and modules, in the order in which they are unloaded.
    Modules(Vec<(&'static str, &'static str)>),
}

impl On {
    /// Takes it off.
    pub(super) fn take_off(self, lab: &FabricLab) -> Result<(), String> {
        match self {
            On::Tracepoints => lab.daemon().ask(&tracepoints(false)).map(drop),
            On::Reader(stream, reader) => {
                stream.shutdown(Shutdown::Write).map_err(|e| format!("the reader: {e}"))?;
                let read = reader.join().map_err(|_| "the reader failed")?;
                if read == 0 { Err("nothing came to be read".into()) } else { Ok(()) }
            }
            On::Modules(modules) => modules.into_iter().try_for_each(|(host, module)| {
                let question = Xdp::Unload { host: Some(host.into()), module: module.into() };
                let answer = lab.daemon().ask(&Question::Xdp(question))?;
                match answer["runs"].as_u64() {
                    None | Some(0) => Err(format!("no frame passed the module {module} on host {host}")),
                    Some(_) => Ok(()),
                }
            }),
        }
    }
}

fn tracepoints(on: bool) -> Question {
    let (all, none) = (vec!["*".to_string()], Vec::new());
    let (enable, disable) = if on { (all, none) } else { (none, all) };
    Question::Tracepoints { host: None, enable, disable }
}

pub(super) fn load(tools: &Tools, lab: &FabricLab, host: &str, module: &str) -> Result<(), String> {
    let object = tools.module(module)?;
    let host = Some(host.to_string());
    let question =
        Xdp::Load { host, name: None, position: None, native: None, program: None, bytes: object.len() as u64 };
    lab.daemon().send(&Question::Xdp(question), &object).map(drop)
}

/// Has a thread read all that follows an answer; it reports how many bytes came.
fn read_on(lab: &FabricLab, question: &Question) -> Result<On, String> {
    let mut reader = lab.daemon().open(question)?;
    let stream = reader.get_ref().try_clone().map_err(|e| e.to_string())?;
    let read = move || {
        let (mut bytes, mut all) = (vec![0; 1 << 18], 0);
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            all += count as u64;
        }
        all
    };
    Ok(On::Reader(stream, std::thread::spawn(read)))
}
