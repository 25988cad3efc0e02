//! Requests to the daemon from calls that may wait.
use crate::lock::Guard;
use crate::state::Lib;
use crate::state::context_side::Context;
use crate::system::errno::Result;
use crate::wait::rounds::Rounds;
use crate::wait::target::{Target, WaitOptions};
use context::{Reply, Request};
use libc::pollfd;

/// Waits for something that the daemon's answers bring, whatever signals come.
pub(crate) fn wait<T>(lib: &mut Guard, mut poll: impl FnMut(&mut Lib) -> Option<T>) -> Result<T> {
    let prepare = |_: &mut Guard, _: &[Target]| Ok(());
    Rounds { wait: WaitOptions::forever(), prepare, poll: |lib: &mut Lib, _: Option<&[pollfd]>| poll(lib) }.until(lib)
}

/// Sends a request and waits for its answer. `ENETDOWN` where the daemon is gone.
pub(crate) fn ask(lib: &mut Guard, make: impl FnOnce(u32) -> Request) -> Result<Reply> {
    let context = lib.need_context()?;
    let (tag, number) = (context.fresh_tag(), context.number);
    context.answers.insert(tag, None);
    let request = make(tag);
    wait(lib, |lib| match still(lib, number) {
        None => Some(Err(libc::ENETDOWN)),
        Some(context) => context.send_request(request).then_some(Ok(())),
    })??;
    let reply = wait(lib, |lib| match still(lib, number) {
        None => Some(Err(libc::ENETDOWN)),
        Some(context) => context.answers.get_mut(&tag)?.take().map(Ok),
    })?;
    if let Some(context) = still(lib, number) {
        context.answers.remove(&tag);
    }
    match reply? {
        Reply::Failed { errno, .. } => Err(errno as i32),
        reply => Ok(reply),
    }
}

/// Sends a request that is not answered, waiting for room in the ring where there is none.
pub(crate) fn send_request(lib: &mut Guard, request: Request) {
    let Some(number) = lib.context().map(|context| context.number) else { return };
    let _ = wait(lib, |lib| match still(lib, number) {
        None => Some(()),
        Some(context) => context.send_request(request).then_some(()),
    });
}

/// The context with this number, if it is still the process's.
fn still(lib: &mut Lib, number: u32) -> Option<&mut Context> {
    lib.context().filter(|context| context.number == number)
}
