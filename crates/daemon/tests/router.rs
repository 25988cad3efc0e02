//! A host that takes its IPv6 address from a router (docs/IPV6.md, "From a router"): the router is Debian's radvd, on
//! the kernel's side of the host's TAP device.
mod common;

use common::application::{attach, request, until};
use common::{Toed, refused};
use context::{Congestion, EarlyData, Endpoint, Reply, Request};
use daemon::protocol::Question;
use port::{AfXdp, AfXdpConfig, Interface, Netns};
use std::fs;
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const DEVICE: &str = "router0";
const MAC: &str = "02:00:00:00:00:07";
const ADDRESS: &str = "2001:db8:7::ff:fe00:7";

fn configuration(netns: &Netns, more: &str) -> String {
    format!(
        "log = \"error\"\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nipv6 = {{ auto = true }}\n\
         port = {{ kind = \"tap\", device = \"{DEVICE}\", netns = \"{}\", mac = \"{MAC}\", \
         kernel_address = \"10.0.0.100/24\"{more} }}\n",
        netns.path()
    )
}

/// radvd in a namespace, ended with this.
struct Router {
    child: Child,
    files: PathBuf,
}

impl Router {
    /// Starts it; it waits for the device by itself. `None` where radvd is not installed.
    fn start(netns: &Netns, device: &str) -> Option<Router> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        // Tests run side by side, and radvd locks its pid file.
        let number = STARTED.fetch_add(1, Relaxed);
        let files = std::env::temp_dir().join(format!("router-{}-{number}", std::process::id()));
        fs::create_dir_all(&files).unwrap();
        let text = format!(
            "interface {device} {{ AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvLinkMTU 1400; \
             prefix 2001:db8:7::/64 {{ AdvOnLink on; AdvAutonomous on; }}; RDNSS 2001:db8:7::53 {{ }}; }};\n"
        );
        let (configuration, pid) = (files.join("radvd.conf"), files.join("pid"));
        fs::write(&configuration, text).unwrap();
        // Otherwise the kernel does not take hosts' addresses from their questions, and asks for each. An answer waits
        // meanwhile, also behind the last advertisement (RFC 4861 section 6.2.6).
        netns.run(|| fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")).unwrap().unwrap();
        let mut command = Command::new("radvd");
        command.args(["-n", "-m", "stderr", "-C"]).arg(&configuration).arg("-p").arg(&pid);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stderr(Stdio::null());
        netns.start_inside(&mut command).unwrap();
        let child = command.spawn().ok()?;
        Some(Router { child, files })
    }
}

impl Router {
    /// It ends as a service does: its last advertisement has no lifetime.
    fn resign(mut self) {
        let own = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.files);
    }
}

#[test]
fn a_host_takes_its_address_and_its_gateway_from_a_router() {
    let Ok(netns) = Netns::create() else { return println!("SKIPPED: a namespace needs privileges") };
    let Some(_router) = Router::start(&netns, DEVICE) else { return println!("SKIPPED: there is no radvd") };
    let mut toed = Toed::start(&configuration(&netns, ", kernel_address6 = \"2001:db8:7::1/64\""));
    let host = &toed.ask(&Question::Ls)["hosts"][0];
    assert_eq!((&host["address6"], &host["prefix_len6"]), (&ADDRESS.into(), &64.into()), "{host}");
    let gateway = host["gateway6"].as_str().unwrap().to_string();
    assert!(gateway.starts_with("fe80::"), "{gateway}");
    let (_socket, mut sockets) = attach(&toed.socket(), "b");
    let local = Endpoint::from(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 80));
    let bind = Request::Bind { tag: 1, local, reuse_address: false, reuse_port: false, dual_stack: false };
    let Reply::Bound { binding, .. } = request(&mut sockets, bind) else { panic!("not bound") };
    assert_eq!(request(&mut sockets, Request::Listen { tag: 2, binding, backlog: 8 }), Reply::Done { tag: 2 });
    // The kernel's side tries its own address before it uses it, too.
    let to = SocketAddr::new(ADDRESS.parse().unwrap(), 80);
    until("a connection over IPv6", || netns.run(move || TcpStream::connect(to).is_ok()).unwrap());
    assert!(toed.end().success());
}

/// Radvd resigns when it ends, and comes back.
#[test]
fn routers_are_followed_after_the_start() {
    let Ok(netns) = Netns::create() else { return println!("SKIPPED: a namespace needs privileges") };
    let Some(router) = Router::start(&netns, DEVICE) else { return println!("SKIPPED: there is no radvd") };
    let mut toed = Toed::start(&configuration(&netns, ", kernel_address6 = \"2001:db8:7::1/64\""));
    let gateway = |toed: &Toed| toed.ask(&Question::Ls)["hosts"][0]["gateway6"].clone();
    let first = gateway(&toed);
    assert!(first.as_str().is_some_and(|first| first.starts_with("fe80::")), "{first}");
    router.resign();
    until("the router's end", || gateway(&toed).is_null());
    let (_socket, mut program) = attach(&toed.socket(), "b");
    let remote = Endpoint::from(SocketAddr::new("2001:db8:99::1".parse().unwrap(), 80));
    let connect =
        Request::Connect { tag: 3, binding: 0, remote, congestion: Congestion::DEFAULT, mss: 0, early: EarlyData::No };
    let unreachable = request(&mut program, connect);
    assert_eq!(unreachable, Reply::Failed { tag: 3, errno: libc::ENETUNREACH as u16 });
    let _again = Router::start(&netns, DEVICE);
    until("a router that is back", || gateway(&toed) == first);
    assert!(matches!(request(&mut program, connect), Reply::Connecting { tag: 3, .. }));
    assert!(toed.end().success());
}

/// Two ends of a cable in namespaces of their own: a network card, and `far0`. `None` where there is no AF_XDP.
fn cable(test: &str) -> Option<(Netns, Netns)> {
    let (Ok(near), Ok(far)) = (Netns::create(), Netns::create()) else {
        println!("SKIPPED {test}: a namespace needs privileges");
        return None;
    };
    let card = near.run(|| Interface::create_veth("card0", "far0", Some(far.as_fd())).and_then(|card| card.set_up()));
    card.unwrap().unwrap();
    far.run(|| Interface::named("far0").and_then(|far| far.set_up())).unwrap().unwrap();
    let own = AfXdpConfig { interface: "card0".into(), netns: Some(near.path()), ..AfXdpConfig::default() };
    let opened = AfXdp::open(&own).map(drop);
    opened.map_err(|why| println!("SKIPPED {test}: there is no AF_XDP: {why}")).ok()?;
    Some((near, far))
}

/// A host with that card.
fn on_card(near: &Netns) -> String {
    format!(
        "log = \"error\"\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nipv6 = {{ auto = true }}\n\
         port = {{ kind = \"afxdp\", device = \"card0\", netns = \"{}\", exclusive = true, mac = \"{MAC}\" }}\n",
        near.path()
    )
}

#[test]
fn a_host_on_a_network_card_of_its_own_does_so_too() {
    let Some((near, far)) = cable("a network card") else { return };
    let Some(_router) = Router::start(&far, "far0") else { return println!("SKIPPED: there is no radvd") };
    let mut toed = Toed::start(&on_card(&near));
    let host = &toed.ask(&Question::Ls)["hosts"][0];
    assert_eq!(host["address6"], ADDRESS, "{host}");
    assert!(host["gateway6"].as_str().unwrap().starts_with("fe80::"), "{host}");
    assert!(toed.end().success());
}

#[test]
fn a_duplicate_address_ends_the_daemon_with_a_sentence() {
    let Some((near, far)) = cable("an address twice") else { return };
    // The other end has the link-local address that the host's hardware address gives, and uses it already.
    let ip = |arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(arguments);
        far.start_inside(&mut command).unwrap();
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    ip(&["-6", "address", "add", "fe80::ff:fe00:7/64", "dev", "far0", "nodad"]);
    until("the other end's address", || {
        let shown = ip(&["-6", "address", "show", "dev", "far0"]);
        shown.contains("fe80::ff:fe00:7/64") && !shown.contains("tentative")
    });
    let (_, output) = refused(&on_card(&near));
    assert!(output.contains("another station has the address fe80::ff:fe00:7"), "{output}");
}
