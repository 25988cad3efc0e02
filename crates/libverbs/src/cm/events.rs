//! Events: taken from a channel, prepared for the program (the steps of its queue pair go before), acknowledged.
use super::device_identifier::DeviceIdentifier;
use super::held::{EventDetails, Shape, held, kind};
use super::identifier::{self, Channel, Id};
use super::joined::joined;
use super::lifetime;
use super::service::{Service, service};
use crate::abi::{RdmaCmEvent, RdmaCmId, RdmaEventChannel};
use crate::channel::read_message;
use crate::errno::{self, Result};
use crate::qp_calls::modify;
use libc::{c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use verbs::connections::{Answer, Event, Happened, Parameters, Request, Space};
use verbs::control::Answer as Control;
use verbs::{Gid, QpAttributes, QpState};

/// Names of the events.
const NAMES: [&std::ffi::CStr; 16] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
];

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut RdmaEventChannel {
    errno::pointer(Channel::open())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut RdmaEventChannel) {
    if !channel.is_null() {
        // SAFETY: `rdma_create_event_channel` gave it, and the program uses it no more.
        unsafe { Channel::close(channel) };
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut RdmaEventChannel,
    into: *mut *mut RdmaCmEvent,
) -> c_int {
    if channel.is_null() || into.is_null() {
        return errno::minus_one(Err(libc::EINVAL));
    }
    // SAFETY: the program passes a channel of its own.
    errno::minus_one(unsafe { next(channel) }.map(|event| {
        // SAFETY: the program passes a place for the event.
        unsafe { *into = event };
    }))
}

/// Waits for the next event of a channel, or not, as the program has set its descriptor. Where another thread destroys
/// the channel meanwhile, it does not come back: as with the kernel's, a waiting thread is not woken. `rping` ends so.
///
/// # Safety
/// The channel is the program's.
pub(crate) unsafe fn next(channel: *mut RdmaEventChannel) -> Result<*mut RdmaCmEvent> {
    // SAFETY: as the caller guarantees.
    match unsafe { wait(channel) }? {
        Some(event) => Ok(event),
        None => loop {
            std::thread::park();
        },
    }
}

/// The next event of a channel; `None` where the channel is destroyed.
///
/// # Safety
/// As [`next`].
unsafe fn wait(channel: *mut RdmaEventChannel) -> Result<Option<*mut RdmaCmEvent>> {
    // SAFETY: as the caller guarantees.
    let (fd, asking) = unsafe { ((*channel).fd, Channel::of(channel).asking()) };
    // The program's descriptor is closed with the channel, and its number may be another file's then.
    // SAFETY: the channel's, so far.
    let own = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    let fd = own.as_ref().map_or(fd, AsRawFd::as_raw_fd);
    loop {
        let [token] = match read_message::<1>(fd) {
            Err(libc::EIO) if service()?.attachment.is_alive() => return Ok(None),
            read => read?,
        };
        let Some((service, number)) = asking.device(token) else { continue };
        let answer = match service.answer(Request::Event(number)) {
            Err(libc::EINVAL) => return Ok(None),
            answer => answer?,
        };
        // An identifier may have taken its events to another channel meanwhile.
        if let Answer::Event(Some(event)) = answer {
            if let Some(event) = take(service, channel, event) {
                return Ok(Some(event));
            }
        }
    }
}

/// The event in the program's form; `None` where nobody is to be notified of it.
fn take(service: &'static Service, channel: *mut RdmaEventChannel, event: Event) -> Option<*mut RdmaCmEvent> {
    let Event { id, what } = event;
    if let Happened::Requested { listener, .. } = &what {
        let listener = *listener;
        return requested(DeviceIdentifier { service, number: id }, channel, listener, what);
    }
    let id = *service.ids().get(&id)?;
    // SAFETY: an identifier leaves the table before it is freed.
    let of = unsafe { Id::of(id) };
    let shape = match what {
        Happened::Joined(group) => joined(of, group)?,
        what => shape(id, of, what),
    };
    of.events.got();
    let name = remote_gid(of);
    Some(held(id, null_mut(), shape, name))
}

/// A peer asks: the identifier for it.
fn requested(
    seat: DeviceIdentifier,
    channel: *mut RdmaEventChannel,
    listener: verbs::Number,
    what: Happened,
) -> Option<*mut RdmaCmEvent> {
    let Happened::Requested { local, remote, parameters, .. } = what else { return None };
    let service = seat.service;
    let listening = *service.ids().get(&listener)?;
    // SAFETY: an identifier leaves the table before it is freed.
    let of = unsafe { Id::of(listening) };
    let space = of.space();
    let id = Id::add(seat, channel, of.public.context, space);
    // SAFETY: it was made just now.
    let made = unsafe {
        identifier::bind(service, id, local);
        identifier::name_peer(id, remote);
        (*id).qp_type = of.public.qp_type;
        Id::of(id)
    };
    made.private().peer_parameters = parameters.clone();
    // A listener that waits by itself gives connections that do so.
    // SAFETY: it was made just now.
    if of.private().waits && unsafe { lifetime::migrate(id, null_mut()) }.is_err() {
        // SAFETY: the program has no pointer to it.
        let _ = unsafe { lifetime::destroy(id) };
        return None;
    }
    of.events.got();
    let details = match space {
        Space::Connections => EventDetails::Connection(parameters),
        Space::Datagrams => EventDetails::Datagrams(parameters.data, 0, 0),
    };
    let shape = Shape { kind: kind::CONNECT_REQUEST, status: 0, details };
    Some(held(id, listening, shape, remote_gid(made)))
}

fn shape(id: *mut RdmaCmId, of: &Id, what: Happened) -> Shape {
    match what {
        Happened::AddressResolved => Shape::of(kind::ADDR_RESOLVED, 0),
        Happened::AddressError(number) => Shape::of(kind::ADDR_ERROR, -number),
        Happened::RouteResolved => Shape::of(kind::ROUTE_RESOLVED, 0),
        Happened::Replied(parameters) => replied(id, of, parameters),
        Happened::Established(parameters) => {
            Shape { kind: kind::ESTABLISHED, status: 0, details: EventDetails::Connection(parameters) }
        }
        Happened::Found { qp, key, data } => {
            Shape { kind: kind::ESTABLISHED, status: 0, details: EventDetails::Datagrams(data, qp, key) }
        }
        Happened::TimedOut => {
            fail(of);
            Shape::of(kind::UNREACHABLE, -libc::ETIMEDOUT)
        }
        Happened::Rejected { reason, data } => {
            fail(of);
            let details = EventDetails::Connection(Parameters { data, ..Parameters::default() });
            Shape { kind: kind::REJECTED, status: reason.into(), details }
        }
        Happened::NotFound { status, data } => {
            Shape { kind: kind::UNREACHABLE, status: status.into(), details: EventDetails::Datagrams(data, 0, 0) }
        }
        Happened::Disconnected => Shape::of(kind::DISCONNECTED, 0),
        Happened::TimeWaitOver => Shape::of(kind::TIMEWAIT_EXIT, 0),
        Happened::Requested { .. } | Happened::Joined(_) => Shape::of(kind::CONNECT_ERROR, -libc::EPROTO),
    }
}

/// The peer accepts: the queue pair is made ready, and the peer gets the answer. A program without a queue pair here
/// does that by itself (`rdma_establish`).
fn replied(id: *mut RdmaCmId, of: &Id, parameters: Parameters) -> Shape {
    of.private().peer_parameters = parameters.clone();
    let details = EventDetails::Connection(parameters);
    if of.public.qp.is_null() {
        return Shape { kind: kind::CONNECT_RESPONSE, status: 0, details };
    }
    let DeviceIdentifier { service, number } = of.seat();
    // SAFETY: an identifier in the table.
    let ready = unsafe { make_ready(id, None) }.and_then(|()| service.done(Request::Establish(number)));
    match ready {
        Ok(()) => Shape { kind: kind::ESTABLISHED, status: 0, details },
        Err(errno) => {
            fail(of);
            let _ = service.done(Request::Reject { id: number, data: Vec::new() });
            Shape::of(kind::CONNECT_ERROR, -errno)
        }
    }
}

/// The queue pair goes to the states in which it receives and sends, with these parameters instead of those that the
/// daemon has agreed on.
///
/// # Safety
/// The identifier is not destroyed, and has a queue pair.
pub(crate) unsafe fn make_ready(id: *mut RdmaCmId, own: Option<&Parameters>) -> Result<()> {
    for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
        // SAFETY: as the caller guarantees.
        let mut attributes = attributes(unsafe { Id::of(id) }, state)?;
        if let Some(own) = own {
            let resources = &mut attributes.responder_resources;
            resources.iter_mut().for_each(|resources| *resources = own.responder_resources);
            attributes.initiator_depth.iter_mut().for_each(|depth| *depth = own.initiator_depth);
        }
        // SAFETY: as the caller guarantees.
        unsafe { modify((*id).qp, attributes)? };
    }
    Ok(())
}

/// What a queue pair needs for a state, by the daemon.
pub(crate) fn attributes(of: &Id, state: QpState) -> Result<QpAttributes> {
    let DeviceIdentifier { service, number } = of.seat();
    match service.ask(Request::Attributes { id: number, state })? {
        Control::Attributes(attributes) => Ok(attributes),
        _ => Err(libc::EIO),
    }
}

/// The connection is not there: neither is its queue pair.
pub(crate) fn fail(of: &Id) {
    if !of.public.qp.is_null() {
        let attributes = QpAttributes { state: Some(QpState::Error), ..QpAttributes::default() };
        // SAFETY: the identifier's queue pair is not destroyed before it.
        let _ = unsafe { modify(of.public.qp, attributes) };
    }
}

fn remote_gid(of: &Id) -> Gid {
    Gid(of.public.route.addr.ibaddr.dgid.raw)
}

#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    let known = usize::try_from(event).ok().and_then(|event| NAMES.get(event));
    known.copied().unwrap_or(c"UNKNOWN EVENT").as_ptr()
}
