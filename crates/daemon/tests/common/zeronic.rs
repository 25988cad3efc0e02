//! Fixture: two ZeroNIC hosts, `a` and `b`, over each transport.
use port::{Netns, Tap, TapConfig};

pub(crate) fn configuration(transport: &str, faults: &str) -> String {
    let host = |name: &str, last: u8| {
        format!("[[zeronic]]\nname = \"{name}\"\naddress = \"10.0.0.{last}\"\ntransport = \"{transport}\"\n")
    };
    format!("log = \"error\"\n[[fabric]]\nname = \"f\"\n{faults}\n{}{}", host("a", 1), host("b", 2))
}

/// A fabric's uplink to the kernel of a namespace, which is 10.0.0.100.
pub(crate) fn uplink(netns: &Netns) -> String {
    format!(
        "[[fabric.uplink]]\nkind = \"tap\"\ndevice = \"zero0\"\nnetns = \"{}\"\nkernel_address = \"10.0.0.100/24\"",
        netns.path()
    )
}

/// Whether `linux` can be a transport here; a printed line where it cannot.
pub(crate) fn linux_can_be(test: &str) -> bool {
    let may = Netns::create().and_then(|netns| {
        let device = TapConfig { netns: Some(netns.path()), ..TapConfig::default() };
        Tap::open(&device).map(drop)
    });
    may.map_err(|sentence| println!("SKIPPED {test} over linux: {sentence}")).is_ok()
}

/// The transports that there are here.
pub(crate) fn transports(test: &str) -> Vec<&'static str> {
    let linux = linux_can_be(test).then_some("linux");
    ["flextoe", "laminar"].into_iter().chain(linux).collect()
}
