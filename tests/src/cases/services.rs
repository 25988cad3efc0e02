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

/// Its master listens and polls, and never accepts: the processes that do come when it sees a connection. After the
/// login, a connection passes to another process.
pub(super) fn dovecot(bench: &Bench) -> Outcome {
    let place = place(bench, "dovecot")?;
    let home = place.display();
    let configuration = format!(
        "base_dir = {home}/run\nprotocols = imap\nlisten = 0.0.0.0\nssl = no\ndisable_plaintext_auth = no\n\
         log_path = /dev/stderr\nmail_location = maildir:{home}/mail\nmail_uid = nobody\nmail_gid = nogroup\n\
         first_valid_uid = 1\nfirst_valid_gid = 1\n\
         passdb {{\n driver = static\n args = password=secret\n}}\n\
         userdb {{\n driver = static\n args = home={home}/home\n}}\n\
         service imap-login {{\n inet_listener imap {{\n port = {}\n }}\n inet_listener imaps {{\n port = 0\n }}\n}}\n",
        bench.port
    );
    for folder in ["mail", "home"] {
        let folder = place.join(folder);
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).map_err(|error| error.to_string())?;
    }
    let file = write(&place.join("configuration"), &configuration)?;
    let _server = bench.server(bench.lab.on_server("/usr/sbin/dovecot"), &["-F", "-c", &file])?;
    let program = format!(
        "import concurrent.futures, imaplib\n\
         text = b'Subject: hello\\r\\n\\r\\n' + b'x' * 100000 + b'\\r\\n'\n\
         def session(turn):\n \
         mails = imaplib.IMAP4('{}', {}, timeout=20)\n \
         mails.login('user', 'secret')\n \
         assert mails.append('INBOX', None, None, text)[0] == 'OK'\n \
         count = int(mails.select()[1][0])\n \
         assert mails.fetch(str(count), '(RFC822)')[1][0][1] == text\n \
         mails.logout()\n\
         for turn in range(5): session(turn)\n\
         list(concurrent.futures.ThreadPoolExecutor(8).map(session, range(40)))",
        bench.address(),
        bench.port
    );
    bench.client(PYTHON, &["-c", &program])?;
    Ok("45 sessions, 8 at a time, each with a mail of 100 kB stored and read".into())
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
