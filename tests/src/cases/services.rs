//! Services with processes of their own ways: limits, other users, another event loop.
use super::{Bench, LARGE, PYTHON, echo};
use crate::report::Outcome;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder of one case, which other users may enter.
fn place(bench: &Bench, name: &str) -> Result<PathBuf, String> {
    let place = bench.session.dir().join(format!("{name}-{}", bench.port));
    fs::create_dir_all(&place).map_err(|error| error.to_string())?;
    open(bench.session.dir())?;
    open(&place)?;
    Ok(place)
}

fn open(place: &Path) -> Result<(), String> {
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())
}

fn write(place: &Path, text: &str) -> Result<String, String> {
    fs::write(place, text).map_err(|error| format!("{}: {error}", place.display()))?;
    Ok(place.display().to_string())
}

/// A session's processes limit their address space, give up root and change their root. Passive: the client connects
/// again; active: the server does.
pub(super) fn vsftpd(bench: &Bench) -> Outcome {
    let place = place(bench, "vsftpd")?;
    // Debian's service makes it.
    fs::create_dir_all("/run/vsftpd/empty").map_err(|error| error.to_string())?;
    open(bench.files.dir())?;
    let configuration = format!(
        "listen=YES\nbackground=NO\nlisten_port={}\nanonymous_enable=YES\nlocal_enable=NO\nno_anon_password=YES\n\
         anon_root={}\nanon_world_readable_only=NO\nsecure_chroot_dir=/run/vsftpd/empty\nconnect_from_port_20=NO\n\
         seccomp_sandbox=NO\nxferlog_enable=NO\n",
        bench.port,
        bench.files.dir().display()
    );
    let file = write(&place.join("configuration"), &configuration)?;
    let _server = bench.server(bench.lab.on_server("/usr/sbin/vsftpd"), &[&file])?;
    let url = format!("ftp://{}:{}/{LARGE}", bench.address(), bench.port);
    for mode in ["--ftp-pasv", "--ftp-port -"] {
        let script = format!("curl -sS --fail --disable-epsv --disable-eprt {mode} {url} | sha256sum");
        bench.files.expect(LARGE, &bench.client("sh", &["-c", &script])?)?;
    }
    Ok("100 MB by SHA-256, passive and active".into())
}

/// libuv below Python: it closes descriptors by number.
pub(super) fn uvloop(bench: &Bench) -> Outcome {
    let program = format!(
        "import asyncio, uvloop\n\
         class Echo(asyncio.Protocol):\n \
         def connection_made(self, transport): self.transport = transport\n \
         def data_received(self, data): self.transport.write(data)\n\
         async def main():\n \
         server = await asyncio.get_running_loop().create_server(Echo, '0.0.0.0', {})\n \
         await server.serve_forever()\n\
         uvloop.install(); asyncio.run(main())",
        bench.port
    );
    let _server = bench.server(bench.lab.on_server(PYTHON), &["-c", &program])?;
    echo::call(bench, &["-n", "32", "-s", "64", "-d", "4"])
}
