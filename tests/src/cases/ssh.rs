//! OpenSSH: its server reads from unknown peers in a process that a seccomp filter confines.
use super::{Bench, LARGE};
use crate::report::Outcome;
use std::fs;
use std::path::Path;

/// Bytes of all 100 MB through a login, by SHA-256 there, and 10 MB through another one that sends them back.
pub(super) fn login(bench: &Bench) -> Outcome {
    let place = bench.session.dir().join(format!("ssh-{}", bench.port));
    fs::create_dir_all(&place).map_err(|error| error.to_string())?;
    // The server's unprivileged process changes its root to here; Debian's service makes it.
    fs::create_dir_all("/run/sshd").map_err(|error| error.to_string())?;
    let path = |name: &str| place.join(name).display().to_string();
    for key in ["host", "user"] {
        make_key(bench, &place.join(key))?;
    }
    fs::copy(path("user.pub"), path("authorized")).map_err(|error| error.to_string())?;
    let configuration = format!(
        "Port {}\nListenAddress 0.0.0.0\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
         PermitRootLogin yes\n",
        bench.port,
        path("host"),
        path("authorized")
    );
    fs::write(path("configuration"), configuration).map_err(|error| error.to_string())?;
    let _server = bench.server(bench.lab.on_server("/usr/sbin/sshd"), &["-D", "-e", "-f", &path("configuration")])?;
    let login = format!(
        "ssh -F none -p {} -i {} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -o LogLevel=ERROR root@{}",
        bench.port,
        path("user"),
        bench.address()
    );
    let large = bench.files.path(LARGE);
    let there = bench.client("sh", &["-c", &format!("{login} sha256sum < {large}")])?;
    bench.files.expect(LARGE, &there)?;
    let back = format!("head -c 10000000 {large} | {login} cat | cmp -n 10000000 - {large}");
    bench.client("sh", &["-c", &back])?;
    fs::remove_dir_all(&place).map_err(|error| error.to_string())?;
    Ok("two logins, 100 MB by SHA-256, 10 MB there and back".into())
}

fn make_key(bench: &Bench, path: &Path) -> Result<(), String> {
    let mut command = std::process::Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    bench.session.run(command).map(drop)
}
