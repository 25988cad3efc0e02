//! The old daemon's side. Whatever goes wrong until the new one has said that it goes on, this one goes on.
use super::{Line, Word, in_memory, strange};
use crate::build::HostPlace;
use crate::clock::Clock;
use crate::config::{Config, PortKind};
use crate::datapath::{Handle, Stopped};
use engine::ContextId;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the old daemon has to give.
pub(crate) struct Giving<'a> {
    pub(crate) config: &'a Config,
    pub(crate) handles: &'a [Handle],
    pub(crate) hosts: &'a [HostPlace],
    /// The attach and the management socket.
    pub(crate) listeners: [BorrowedFd<'a>; 2],
    /// The connection to the process of a context: by host and context.
    pub(crate) peer: &'a dyn Fn(&HostPlace, ContextId) -> Option<OwnedFd>,
}

/// Hands everything over. The error is a sentence; then everything is as it was.
pub(crate) fn give(giving: &Giving<'_>, socket: OwnedFd, clock: Clock) -> Result<(), String> {
    let line = Line::new(socket)?;
    let begun = prepare(giving, &line, clock).and_then(|()| match line.hear()?.0 {
        Word::Stop => Ok(()),
        _ => Err(strange()),
    });
    let done = begun.and_then(|()| {
        let given = stop_and_send(giving, &line).and_then(|()| match line.hear()?.0 {
            Word::Taken => Ok(()),
            _ => Err(strange()),
        });
        if given.is_err() {
            for handle in giving.handles {
                let _ = handle.ask(|path| path.go_on());
            }
        }
        given
    });
    if let Err(sentence) = &done {
        // It may be gone: then it needs no reason.
        let _ = line.say(&Word::Refused(sentence.clone()), &[]);
    }
    done
}

/// Says what there is, and hands over what is needed to make everything anew.
fn prepare(giving: &Giving<'_>, line: &Line, clock: Clock) -> Result<(), String> {
    if let Some(fabric) = giving.config.fabrics.iter().find(|fabric| !fabric.uplinks.is_empty()) {
        return Err(format!("fabric {} has uplinks, which cannot be handed over", fabric.name));
    }
    let mut taps = Vec::new();
    for place in giving.hosts {
        let (name, index) = (place.config.stack.name.clone(), place.index);
        if place.config.ports.iter().any(|port| port.kind == PortKind::Afxdp) {
            return Err(format!("host {name} has an AF_XDP port, which cannot be handed over"));
        }
        let parts = giving.handles[place.thread].ask(move |path| path.handover_of(index))??;
        for (port, (device, mac, fd)) in parts.into_iter().enumerate() {
            if place.config.ports[port].kind == PortKind::Tap {
                taps.push((Word::Tap { host: name.clone(), port, device, mac }, fd));
            }
        }
    }
    line.say(&Word::Ready { now: clock.now(), taps: taps.len() }, &[])?;
    taps.iter().try_for_each(|(word, fd)| line.say(word, &[fd.as_fd()]))
}

fn stop_and_send(giving: &Giving<'_>, line: &Line) -> Result<(), String> {
    let mut threads = Vec::new();
    for handle in giving.handles {
        threads.push(handle.ask(|path| path.stop_hosts())??);
    }
    let hosts: Vec<(&HostPlace, &Stopped)> =
        giving.hosts.iter().map(|place| (place, &threads[place.thread][place.index])).collect();
    let states: Vec<_> = hosts.iter().map(|(_, stopped)| &stopped.state).collect();
    let text = serde_json::to_vec(&states).map_err(|e| e.to_string())?;
    let region = in_memory(&text)?;
    let contexts = hosts.iter().map(|(_, stopped)| stopped.descriptors.len()).sum();
    let [attach, management] = giving.listeners;
    line.say(&Word::Stopped { bytes: text.len(), contexts }, &[region.fd(), attach, management])?;
    for (place, stopped) in hosts {
        for (context, own) in &stopped.descriptors {
            let peer = (giving.peer)(place, *context);
            let fds: Vec<BorrowedFd<'_>> = own.iter().chain(&peer).map(|fd| fd.as_fd()).collect();
            let word = Word::Context { host: place.config.stack.name.clone(), context: context.0 };
            line.say(&word, &fds)?;
        }
    }
    Ok(())
}
