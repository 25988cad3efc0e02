//! `bind`.
use crate::daemon::ask;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::socket::{Bound, Kind};
use crate::system::errno::Result;
use context::{Endpoint, Reply, Request, Unaccelerated};

/// `bind`.
pub(crate) fn bind(lib: &mut Guard, key: Key, local: Endpoint) -> Result<()> {
    bind_to(lib, key, local, local.port == 0)
}

/// The same; `chosen`: the program did not ask for this port.
pub(crate) fn bind_to(lib: &mut Guard, key: Key, local: Endpoint, chosen: bool) -> Result<()> {
    let socket = lib.need_socket(key)?;
    if !matches!(socket.kind, Kind::Fresh) {
        return Err(libc::EINVAL);
    }
    let (reuse_address, reuse_port) = (socket.options.reuse_address, socket.options.reuse_port);
    let dual_stack = socket.is_v6 && !socket.options.v6_only;
    let reply = ask::ask(lib, |tag| Request::Bind { tag, local, reuse_address, reuse_port, dual_stack })?;
    let Reply::Bound { binding, local: got, .. } = reply else { return Err(libc::EPROTO) };
    match lib.socket(key) {
        Some(socket) => {
            // As on Linux, an address that was asked for once is kept, even through a later bind to any.
            if !local.ip.is_unspecified() {
                socket.set_asked_ip(local.ip);
                // On Linux, a socket that is bound to one address of IPv6 is for IPv6 alone.
                if !local.ip.is_v4() && !socket.options.v6_only {
                    socket.options.v6_only = true;
                }
            }
            socket.kind = Kind::bound(Bound { binding, local: got, chosen });
        }
        None => {
            ask::send_request(lib, Request::Unbind { binding });
            return Err(libc::EBADF);
        }
    }
    lib.label(key, Unaccelerated::No);
    Ok(())
}
