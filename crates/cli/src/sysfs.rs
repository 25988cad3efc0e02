//! `opentoe run --sysfs`: the host's RDMA devices below `/sys/class/infiniband`, for programs that read it
//! themselves instead of asking libibverbs (`ibstat`, `ibstatus`).
//!
//! Nobody can add to the kernel's folder. So the program has a mount namespace of its own, in which `/sys/class` is
//! another folder: what the kernel has there, and the devices. A user other than root gets it in a user namespace, with
//! no other rights than before. `unshare` (util-linux) makes both, and starts `opentoe run` again there.
use crate::arguments::RunArguments;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, mount_move, unmount};
use serde_json::Value;
use std::ffi::CStr;
use std::fs;
use std::net::Ipv6Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use verbs::port::{self, Link};

const CLASS: &str = "/sys/class";
/// Folders of the kernel's, in the place of which ours stand.
const OURS: [&str; 2] = ["infiniband", "infiniband_verbs"];
/// Versions of the kernel's interface.
const VERBS_VERSION: &str = "6";
const DEVICE_VERSION: &str = "1";

/// Access rights in the new folder.
const OPTIONS: &CStr = c"mode=755";

/// Starts `opentoe run` again, in a namespace for the program; returns only where that fails. The process stays the
/// same, so a private daemon that was started for it stays its own.
pub(crate) fn enter(arguments: &RunArguments, socket: &Path, host: &str) -> String {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return format!("cannot see where this program is: {error}"),
    };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave"]);
    if !rustix::process::geteuid().is_root() {
        // The same user; the rights to mount end with the start of the program.
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        command.args(["--user", "--keep-caps"]);
        command.arg(format!("--map-user={}", user.as_raw())).arg(format!("--map-group={}", group.as_raw()));
    }
    command.arg(own).args(["run", "--in-namespace", "--quiet", "--host", host, "--socket"]).arg(socket);
    command.args(["--intercept", &arguments.intercept, "--wait-limit", &arguments.wait_limit.to_string()]);
    for address in &arguments.wait_for {
        command.args(["--wait-for", &address.to_string()]);
    }
    if let Some(library) = &arguments.lib {
        command.arg("--lib").arg(library);
    }
    let error = command.arg("--").args(&arguments.command).exec();
    format!("cannot run unshare (util-linux), which --sysfs needs: {error}")
}

/// Puts the devices of a host into this process's `/sys/class`; `listed` is what `opentoe ls` shows.
pub(crate) fn show(listed: &Value, host: &str) -> Result<(), String> {
    let devices = Device::all(listed, host);
    if devices.is_empty() {
        return Err(format!(
            "--sysfs has nothing to show: host `{host}` has no RDMA device (rdma = \"own\" or \"all\" gives it one)"
        ));
    }
    let failed = |what: String| move |error: std::io::Error| format!("--sysfs: cannot {what}: {error}");
    let stage = Path::new("/tmp").join(format!("opentoe-class-{}", std::process::id()));
    fs::create_dir(&stage).map_err(failed(format!("make {}", stage.display())))?;
    let made = replace(&stage, &devices).map_err(failed(format!("replace {CLASS}")));
    let _ = fs::remove_dir(&stage);
    made?;
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let cleared = rustix::thread::clear_ambient_capability_set();
    cleared.map_err(|error| failed("give its rights back".into())(error.into()))
}

/// Makes the new `/sys/class` at `stage` and moves it to its place.
fn replace(stage: &Path, devices: &[Device]) -> std::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("opentoe", stage, "tmpfs", flags, OPTIONS)?;
    let filled = fill(stage, devices).and_then(|()| Ok(mount_move(stage, CLASS)?));
    if filled.is_err() {
        let _ = unmount(stage, UnmountFlags::DETACH);
    }
    filled
}

fn fill(stage: &Path, devices: &[Device]) -> std::io::Result<()> {
    for entry in fs::read_dir(CLASS)? {
        let entry = entry?;
        let ours = OURS.iter().any(|name| entry.file_name() == *name);
        if entry.file_type()?.is_dir() && !ours {
            let place = stage.join(entry.file_name());
            fs::create_dir(&place)?;
            mount_bind_recursive(entry.path(), &place)?;
        }
    }
    for (path, content) in devices.iter().flat_map(Device::files) {
        let path = stage.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, content + "\n")?;
    }
    Ok(())
}

/// What the files contain of a device.
struct Device {
    /// Its place among those of the host.
    number: u32,
    name: String,
    host: String,
    gids: Vec<Ipv6Addr>,
    link: Link,
}

impl Device {
    /// Those of a host: its own, and that of a ZeroNIC host that shares its address.
    fn all(listed: &Value, host: &str) -> Vec<Device> {
        let places = ["hosts", "zeronics"].iter().filter_map(|key| listed[*key].as_array()).flatten();
        let of_host = places.filter(|place| place["name"] == host || place["host"] == host);
        let mut devices: Vec<Device> = of_host.filter_map(Device::of).collect();
        devices.iter_mut().zip(0..).for_each(|(device, number)| device.number = number);
        devices
    }

    fn of(host: &Value) -> Option<Device> {
        let rdma = &host["rdma"];
        let gids = rdma["gids"].as_array()?.iter().filter_map(|gid| gid.as_str()?.parse().ok()).collect();
        let [name, host] = [&rdma["device"], &host["name"]].map(|text| text.as_str().map(String::from));
        Some(Device { number: 0, name: name?, host: host?, gids, link: Link::of(rdma["speed_gbit"].as_u64()? as u32) })
    }

    /// Paths below `/sys/class`, and what stands there, without the end of the line: as the kernel writes it
    /// (Documentation/ABI/stable/sysfs-class-infiniband).
    fn files(&self) -> Vec<(String, String)> {
        let device = format!("infiniband/{}", self.name);
        let folder = format!("{device}/ports/1");
        let guid = self.gids.first().map(|gid| groups(gid)[4..].join(":")).unwrap_or_default();
        let features = format!("{:#010x}", port::FEATURES);
        let partition = format!("{:#06x}", port::PARTITION);
        let [major, minor] = port::NODE;
        let node = format!("{major}:{}", minor + self.number);
        let uverbs = format!("infiniband_verbs/uverbs{}", self.number);
        let of_device = [
            ("node_type", "1: CA".to_string()),
            ("node_guid", guid.clone()),
            ("sys_image_guid", guid),
            ("node_desc", format!("{} {}", self.host, self.name)),
            ("fw_ver", env!("CARGO_PKG_VERSION").into()),
            ("hca_type", "OpenTOE".into()),
            ("hw_rev", "0".into()),
        ];
        let of_port = [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("link_layer", "Ethernet"),
            ("rate", self.link.rate),
            ("lid", "0x0"),
            ("lid_mask_count", "0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("cap_mask", &features),
            ("pkeys/0", &partition),
        ];
        let of_verbs = [("abi_version", DEVICE_VERSION), ("dev", &node), ("ibdev", &self.name)];
        let mut files: Vec<(String, String)> = of_device.map(|(name, text)| (format!("{device}/{name}"), text)).into();
        files.extend(of_port.map(|(name, text)| (format!("{folder}/{name}"), text.into())));
        for (at, gid) in self.gids.iter().enumerate() {
            files.push((format!("{folder}/gids/{at}"), groups(gid).join(":")));
            files.push((format!("{folder}/gid_attrs/types/{at}"), "RoCE v2".into()));
        }
        files.extend(of_verbs.map(|(name, text)| (format!("{uverbs}/{name}"), text.into())));
        files.push(("infiniband_verbs/abi_version".into(), VERBS_VERSION.into()));
        files
    }
}

/// A GID in eight groups of four digits.
fn groups(gid: &Ipv6Addr) -> Vec<String> {
    gid.segments().iter().map(|group| format!("{group:04x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_device_has_the_files_that_the_kernel_has() {
        let rdma = |device: &str| {
            let gids = ["fe80::11:22ff:fe33:4455", "::ffff:10.0.0.7"];
            json!({ "device": device, "gids": gids, "speed_gbit": 100, "programs": [] })
        };
        let listed = json!({
            "hosts": [{ "name": "a", "rdma": rdma("toe0") }, { "name": "b", "rdma": null }],
            "zeronics": [{ "name": "z", "host": "a", "rdma": rdma("zeronic0") }],
        });
        let devices = Device::all(&listed, "a");
        let files: Vec<_> = devices.iter().flat_map(Device::files).collect();
        let content = |path: &str| files.iter().find(|(at, _)| at == path).map(|(_, content)| content.as_str());
        assert_eq!(content("infiniband/toe0/node_guid"), Some("0011:22ff:fe33:4455"));
        assert_eq!(content("infiniband/toe0/ports/1/rate"), Some("100 Gb/sec (4X EDR)"));
        assert_eq!(content("infiniband/toe0/ports/1/cap_mask"), Some("0x04010000"));
        assert_eq!(content("infiniband/toe0/ports/1/gids/1"), Some("0000:0000:0000:0000:0000:ffff:0a00:0007"));
        assert_eq!(content("infiniband_verbs/abi_version"), Some("6"));
        for (number, name, node) in [(0, "toe0", "231:192"), (1, "zeronic0", "231:193")] {
            assert_eq!(content(&format!("infiniband_verbs/uverbs{number}/dev")), Some(node));
            assert_eq!(content(&format!("infiniband_verbs/uverbs{number}/ibdev")), Some(name));
        }
        assert_eq!(Device::all(&listed, "z").len(), 1);
        let why = show(&listed, "b").unwrap_err();
        assert!(why.contains("host `b` has no RDMA device"), "{why}");
    }
}
