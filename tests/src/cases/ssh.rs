//! OpenSSH: its server reads from unknown peers in a process that a seccomp filter confines.
use super::{Bench, LARGE, PYTHON};
use crate::process::Process;
use crate::report::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running server, and what its clients need.
struct Place<'a> {
    dir: PathBuf,
    /// Options of a client, but for the port, which `sftp` names otherwise.
    options: String,
    _server: Process<'a>,
}

impl<'a> Place<'a> {
    fn start(bench: &Bench<'a>) -> Result<Place<'a>, String> {
        let dir = bench.session.dir().join(format!("ssh-{}", bench.port));
        fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        // The server's unprivileged process changes its root to here; Debian's service makes it.
        fs::create_dir_all("/run/sshd").map_err(|error| error.to_string())?;
        let path = |name: &str| dir.join(name).display().to_string();
        for key in ["host", "user"] {
            make_key(bench, &dir.join(key))?;
        }
        fs::copy(path("user.pub"), path("authorized")).map_err(|error| error.to_string())?;
        let configuration = format!(
            "Port {}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PidFile none\nPermitRootLogin yes\nGatewayPorts clientspecified\nSubsystem sftp /usr/lib/openssh/sftp-server\n",
            bench.port,
            bench.any(),
            path("host"),
            path("authorized")
        );
        fs::write(path("configuration"), configuration).map_err(|error| error.to_string())?;
        let arguments = ["-D", "-e", "-f", &path("configuration")];
        let server = bench.server(bench.lab.on_server("/usr/sbin/sshd"), &arguments)?;
        let options = format!(
            "-F none -i {} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
             -o LogLevel=ERROR -o BatchMode=yes",
            path("user")
        );
        Ok(Place { dir, options, _server: server })
    }

    fn ssh(&self, bench: &Bench, more: &str) -> String {
        format!("ssh {} -p {} {more} root@{}", self.options, bench.port, bench.address())
    }

    fn end(self) -> Result<(), String> {
        fs::remove_dir_all(&self.dir).map_err(|error| error.to_string())
    }
}

fn make_key(bench: &Bench, path: &Path) -> Result<(), String> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    bench.session.run(command).map(drop)
}

/// Bytes of all 100 MB through a login, by SHA-256 there, and 10 MB through another one that sends them back.
pub(super) fn login(bench: &Bench) -> Outcome {
    let place = Place::start(bench)?;
    let (login, large) = (place.ssh(bench, ""), bench.files.path(LARGE));
    let there = bench.client("sh", &["-c", &format!("{login} sha256sum < {large}")])?;
    bench.files.expect(LARGE, &there)?;
    let back = format!("head -c 10000000 {large} | {login} cat | cmp -n 10000000 - {large}");
    bench.client("sh", &["-c", &back])?;
    place.end()?;
    Ok("two logins, 100 MB by SHA-256, 10 MB there and back".into())
}

/// The server runs a program for it, with the connection's bytes on pipes.
pub(super) fn sftp(bench: &Bench) -> Outcome {
    let place = Place::start(bench)?;
    let path = |name: &str| place.dir.join(name).display().to_string();
    let (large, put, got) = (bench.files.path(LARGE), path("put"), path("got"));
    fs::write(path("batch"), format!("put {large} {put}\nls -l {put}\nget {put} {got}\nrm {put}\n"))
        .map_err(|error| error.to_string())?;
    let address = bench.authority();
    let script = format!("sftp {} -P {} -q -b {} root@{address}", place.options, bench.port, path("batch"));
    bench.client("sh", &["-c", &script])?;
    let mut digest = Command::new("sha256sum");
    digest.arg(&got);
    bench.files.expect(LARGE, &bench.session.run(digest)?)?;
    if Path::new(&put).exists() {
        return Err("the file that was to be removed is still there".into());
    }
    place.end()?;
    Ok("100 MB there and back by SHA-256".into())
}

/// Connections to the client's port lead to a program on the server's side, and the other way round: `ssh` and `sshd`
/// listen, accept and connect themselves.
pub(super) fn forwarding(bench: &Bench) -> Outcome {
    let place = Place::start(bench)?;
    let lab = bench.lab;
    let [served, from_client, offered, from_server] = [(); 4].map(|()| bench.files.fresh_port());
    let web = |mut command: Command, port: u16| {
        let dir = bench.files.dir().display().to_string();
        command.args(["-m", "http.server", &port.to_string(), "--bind", "0.0.0.0", "--directory", &dir]);
        bench.session.spawn(command)
    };
    let _servers_web = web(lab.on_server(PYTHON), served)?;
    let _clients_web = web(lab.on_client(PYTHON), offered)?;
    bench.session.until("two servers to listen", || Ok(lab.listens(served)? && lab.client_listens(offered)?))?;
    let (client, server) = (lab.client.address, lab.server.address);
    let ports = format!("-L 0.0.0.0:{from_client}:{server}:{served} -R 0.0.0.0:{from_server}:{client}:{offered}");
    let forward = format!("exec {}", place.ssh(bench, &format!("-N -o ExitOnForwardFailure=yes {ports}")));
    let mut tunnel = bench.client_in_background("sh", &["-c", &forward])?;
    bench.session.until("both ends of the tunnel to listen", || {
        tunnel.running()?;
        Ok(lab.client_listens(from_client)? && lab.listens(from_server)?)
    })?;
    let ends = [(lab.on_client("sh"), client, from_client), (lab.on_server("sh"), server, from_server)];
    for (mut command, address, port) in ends {
        let (url, large) = (format!("http://{address}:{port}/{LARGE}"), bench.files.path(LARGE));
        // Four connections at once within the one that carries them.
        let script = format!(
            "for i in 1 2 3 4; do curl -sS --fail -r 0-999999 {url} | cmp -n 1000000 - {large} & jobs=\"$jobs $!\"; done
             for job in $jobs; do wait $job || exit 1; done; curl -sS --fail {url} | sha256sum"
        );
        command.args(["-c", &script]);
        bench.files.expect(LARGE, &bench.session.run(command)?)?;
    }
    tunnel.stop()?;
    place.end()?;
    Ok("100 MB by SHA-256 through -L and -R, four connections at once".into())
}
