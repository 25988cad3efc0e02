//! `bind`.
use crate::daemon::ask;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::socket::{Bound, Kind};
use crate::system::errno::Result;
use context::{Endpoint, Reply, Request, Unaccelerated};

/// `bind`.
pub(crate) fn bind(lib: &mut Guard, key: Key, local: Endpoint) -> Result<()> {
    let socket = lib.need_socket(key)?;
    if !matches!(socket.kind, Kind::Fresh) {
        return Err(libc::EINVAL);
    }
    let (reuse_address, reuse_port) = (socket.options.reuse_address, socket.options.reuse_port);
    let reply = ask::ask(lib, |tag| Request::Bind { tag, local, reuse_address, reuse_port })?;
    let Reply::Bound { binding, local: got, .. } = reply else { return Err(libc::EPROTO) };
    match lib.socket(key) {
        Some(socket) => {
            // As on Linux, an address that was asked for once is kept, even through a later bind to any.
            if !local.ip.is_unspecified() {
                socket.set_asked_ip(local.ip);
            }
            socket.kind = Kind::bound(Bound { binding, local: got, chosen: local.port == 0 });
        }
        None => {
            ask::tell(lib, Request::Unbind { binding });
            return Err(libc::EBADF);
        }
    }
    lib.label(key, Unaccelerated::No);
    Ok(())
}
