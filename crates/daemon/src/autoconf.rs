//! IPv6 autoconfiguration of a host: a router solicitation on its first port, once, before the host begins.
use crate::clock::Clock;
use crate::config::HostSection;
use control::{HostConfig, Ipv6Config};
use host::autoconf::{Autoconf, Found};
use port::{FramePool, Port, PortDrops};
use std::thread::sleep;
use std::time::Duration;

/// Between two polls of the port.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Frames of one poll.
const BURST: usize = 64;

/// Finds what there is, within eleven seconds. What comes for others meanwhile is dropped. The error is a sentence.
pub(crate) fn find(host: &str, port: &mut dyn Port, clock: Clock, pool: &FramePool) -> Result<Found, String> {
    let (mut pool, mut drops) = (pool.clone(), PortDrops::default());
    let mut asking = Autoconf::new(clock.now(), port.mac());
    tracing::info!("host {host} solicits an IPv6 router on {}", port.name());
    let (mut out, mut received) = (Vec::new(), Vec::new());
    loop {
        let now = clock.now();
        out.extend(asking.fire(now).into_iter().map(|bytes| {
            let mut frame = pool.small();
            frame.bytes_vec().extend(bytes);
            frame
        }));
        port.send(now, &mut out, &mut pool, &mut drops);
        port.receive(now, BURST, &mut pool, &mut received);
        for frame in received.drain(..) {
            asking.receive(now, frame.bytes());
            pool.put(frame);
        }
        if let Some(result) = asking.result() {
            let found = result.map_err(|why| format!("ipv6.auto: {why}"))?;
            log(host, &found);
            return Ok(found);
        }
        if let Some(why) = port.failure() {
            return Err(format!("ipv6.auto: {why}"));
        }
        sleep(POLL_INTERVAL);
    }
}

fn log(host: &str, found: &Found) {
    let Found { address, prefix_len, router, lifetime_s, .. } = found;
    match router {
        Some(router) => tracing::info!(
            "host {host} has the IPv6 address {address}/{prefix_len}; its router is {router}, for {lifetime_s} s at first"
        ),
        None => tracing::warn!(
            "host {host} has the IPv6 address {address}/{prefix_len}, and no router: it reaches its neighbours only"
        ),
    }
}

/// The section with what was found.
pub(crate) fn with(section: &HostSection, found: Option<Found>) -> HostSection {
    let Some(Found { address, prefix_len, router, mtu, .. }) = found else { return section.clone() };
    let of_link = mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(0);
    let mtu = match section.stack.mtu {
        0 => of_link,
        own if of_link == 0 => own,
        own => own.min(of_link),
    };
    let ipv6 = Ipv6Config { address: Some(address), prefix_len, gateway: router, auto: true };
    HostSection { stack: HostConfig { ipv6, mtu, ..section.stack.clone() }, ..section.clone() }
}
