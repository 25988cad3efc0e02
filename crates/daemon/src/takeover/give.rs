//! Takeover, the old daemon's side. Whatever fails before the new one's `Taken`, this one goes on.
use super::{Device, Line, Message, Owner, in_memory, strange};
use crate::build::HostPlace;
use crate::clock::Clock;
use crate::datapath::{Handle, Stopped};
use engine::ContextId;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the old daemon has to give.
pub(crate) struct Giving<'a> {
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
    let begun = prepare(giving, &line, clock).and_then(|()| match line.recv()?.0 {
        Message::Stop => Ok(()),
        _ => Err(strange()),
    });
    let done = begun.and_then(|()| {
        let given = stop_and_send(giving, &line).and_then(|()| match line.recv()?.0 {
            Message::Taken => Ok(()),
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
        let _ = line.send(&Message::Refused(sentence.clone()), &[]);
    }
    done
}

/// Reports the state, and passes on what is needed to restore everything.
fn prepare(giving: &Giving<'_>, line: &Line, clock: Clock) -> Result<(), String> {
    let mut owners: Vec<(Owner, Vec<Option<Device>>)> = Vec::new();
    for place in giving.hosts {
        let (name, index) = (place.config.stack.name.clone(), place.index);
        let devices = giving.handles[place.thread].ask(move |path| path.handover_of(index))??;
        owners.push((Owner::Host(name), devices));
    }
    for handle in giving.handles {
        let fabrics = handle.ask(|path| path.uplinks())?.map_err(|e| format!("no descriptor of an uplink: {e}"))?;
        owners.extend(fabrics.into_iter().map(|(name, devices)| (Owner::Fabric(name), devices)));
    }
    let places = owners.into_iter().flat_map(|(owner, devices)| {
        devices.into_iter().enumerate().map(move |(at, device)| device.map(|device| (owner.clone(), at, device)))
    });
    let devices: Vec<(Owner, usize, Device)> = places.flatten().collect();
    line.send(&Message::Ready { now: clock.now(), origin: clock.origin(), devices: devices.len() }, &[])?;
    devices.into_iter().try_for_each(|(owner, at, Device { name, mac, descriptors })| {
        let fds: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        line.send(&Message::Device { owner, at, name, mac }, &fds)
    })
}

fn stop_and_send(giving: &Giving<'_>, line: &Line) -> Result<(), String> {
    // On all threads first, since the hosts of a fabric may be on several.
    for handle in giving.handles {
        handle.ask(|path| path.hold_uplinks(true))?;
    }
    let mut threads = Vec::new();
    for handle in giving.handles {
        threads.push(handle.ask(|path| path.stop_hosts())??);
    }
    for handle in giving.handles {
        handle.ask(|path| path.empty_uplinks())?;
    }
    let hosts: Vec<(&HostPlace, &Stopped)> =
        giving.hosts.iter().map(|place| (place, &threads[place.thread][place.index])).collect();
    let states: Vec<_> = hosts.iter().map(|(_, stopped)| &stopped.state).collect();
    let text = serde_json::to_vec(&states).map_err(|e| e.to_string())?;
    let region = in_memory(&text)?;
    let contexts = hosts.iter().map(|(_, stopped)| stopped.descriptors.len()).sum();
    let [attach, management] = giving.listeners;
    line.send(&Message::Stopped { bytes: text.len(), contexts }, &[region.fd(), attach, management])?;
    for (place, stopped) in hosts {
        for (context, own) in &stopped.descriptors {
            let peer = (giving.peer)(place, *context);
            let fds: Vec<BorrowedFd<'_>> = own.iter().chain(&peer).map(|fd| fd.as_fd()).collect();
            let word = Message::Context { host: place.config.stack.name.clone(), context: context.0 };
            line.send(&word, &fds)?;
        }
    }
    Ok(())
}
