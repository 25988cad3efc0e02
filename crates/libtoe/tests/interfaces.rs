//! Lists of interfaces show the host's beside the kernel's, with a stand-in for the daemon.
mod fixture;
mod loop_host;

use fixture::{Fixture, compile, is_installed, text};
use loop_host::{ADDRESS, ADDRESS_V6};
use std::process::Command;

fn expected() -> String {
    let network = ADDRESS.to_string();
    let broadcast = format!("{}.255", network.rsplit_once('.').unwrap().0);
    format!(
        "getifaddrs opentoe0 {ADDRESS} 255.255.255.0 {broadcast} up 1 loopback 0\n\
         card 6 bytes ending in 09\n\
         links 1, the kernel's loopback too: 1\n\
         index 1, back opentoe0, listed 1 beside 1\n\
         no such name 0, no such index 1\n\
         SIOCGIFCONF 1, needs as much as it gave 1, little 1\n\
         SIOCGIFADDR {ADDRESS} 255.255.255.0 {broadcast} up 1 mtu 1400 card 09 index 1 name opentoe0, null -1\n\
         netlink 18: 1 beside the kernel's 1, strange 0, peeked 0\n\
         nothing is left 1\n\
         netlink 22: 2 beside the kernel's 1, strange 0, peeked 1\n\
         nothing is left 1\n"
    )
}

#[test]
fn each_way_of_listing_interfaces_shows_the_hosts() {
    let fixture = Fixture::new("interfaces");
    let program = compile(&fixture, "interfaces");
    let address = ADDRESS.to_string();
    assert_eq!(text(fixture.command(&program).arg(&address)), expected());
    assert!(!text(Command::new(&program).arg(&address)).contains("opentoe"));
    fixture.finish();
}

/// There the C library's own netlink sockets are seen as well: each interface is shown once all the same.
#[test]
#[cfg(target_arch = "x86_64")]
fn and_so_below_the_symbols() {
    let fixture = Fixture::new("interfaces-below");
    let program = compile(&fixture, "interfaces");
    let address = ADDRESS.to_string();
    assert_eq!(text(fixture.command(&program).arg(&address).env("TOE_INTERCEPT", "syscalls")), expected());
    fixture.finish();
}

#[test]
fn programs_that_list_addresses_have_the_hosts() {
    let fixture = Fixture::new("interfaces-programs");
    let (v4, v6) = (format!("{ADDRESS}"), format!("{ADDRESS_V6}"));
    for (program, arguments, addresses) in [
        ("hostname", ["-I"].as_slice(), [Some(&v4), Some(&v6)]),
        ("ip", &["-4", "-oneline", "address"], [Some(&v4), None]),
        ("ip", &["-6", "-oneline", "address"], [None, Some(&v6)]),
    ] {
        if is_installed(program) {
            let here = text(fixture.command(program).args(arguments));
            let without = text(Command::new(program).args(arguments));
            for address in [&v4, &v6] {
                let wanted = addresses.contains(&Some(address));
                assert_eq!(here.contains(address.as_str()), wanted, "{program} {arguments:?}: {here}");
                assert!(!without.contains(address.as_str()));
            }
        }
    }
    fixture.finish();
}
