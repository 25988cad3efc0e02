//! Implementation of `struct rdma_cm_id` and `struct rdma_event_channel`.
use super::address;
use super::device_identifier::DeviceIdentifier;
use super::membership::Membership;
use super::service::{Service, service, service_at};
use crate::abi::{IbvGid, IbvQpInitAttr, RdmaAddr, RdmaCmId, RdmaEventChannel, RdmaIbAddr, RdmaRoute};
use crate::channel::Unacknowledged;
use crate::errno::Result;
use libc::{c_int, c_void};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use verbs::connections::{Parameters, Request, Space};
use verbs::{Number, QpKind};

/// `RDMA_PS_TCP`, `RDMA_PS_UDP`.
pub(crate) const SPACE_TCP: c_int = 0x0106;
pub(crate) const SPACE_UDP: c_int = 0x0111;

/// The numbers of a channel, by the places of the devices: none where no identifier of that device has used it.
type Numbers = Arc<Mutex<Vec<Option<Number>>>>;

/// An event channel: one pipe, to which all devices write their events.
#[repr(C)]
pub(crate) struct Channel {
    public: RdmaEventChannel,
    numbers: Numbers,
    fd: OwnedFd,
}

/// What it takes to ask for an event of a channel, also where the channel is destroyed meanwhile.
pub(crate) struct Asking(Numbers);

impl Asking {
    /// The device that a token names, and the channel's number there; `None` where no such device has the channel.
    pub(crate) fn device(&self, token: u8) -> Option<(&'static Service, Number)> {
        let place = usize::from(token).checked_sub(1)?;
        let number = (*self.0.lock().unwrap_or_else(PoisonError::into_inner).get(place)?)?;
        Some((service_at(place).ok()?, number))
    }
}

impl Channel {
    /// A new one.
    pub(crate) fn open() -> Result<*mut RdmaEventChannel> {
        let (number, fd) = service()?.number(Request::OpenChannel)?;
        let fd = fd.ok_or(libc::EIO)?;
        let public = RdmaEventChannel { fd: fd.as_raw_fd() };
        let numbers = Arc::new(Mutex::new(vec![Some(number)]));
        Ok(Box::into_raw(Box::new(Channel { public, numbers, fd })).cast())
    }

    /// Its number at a device, which writes to the same pipe from now on.
    pub(crate) fn at(&self, service: &Service) -> Result<Number> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let place = service.place;
        if let Some(Some(number)) = numbers.get(place) {
            return Ok(*number);
        }
        let token = u8::try_from(place + 1).map_err(|_| libc::ENOMEM)?;
        let number = service.number_for(Request::JoinChannel { token }, self.fd.as_fd())?;
        if numbers.len() <= place {
            numbers.resize(place + 1, None);
        }
        numbers[place] = Some(number);
        Ok(number)
    }

    /// For threads that wait for its events.
    pub(crate) fn asking(&self) -> Asking {
        Asking(Arc::clone(&self.numbers))
    }

    /// The channel behind the public part.
    ///
    /// # Safety
    /// [`Channel::open`] gave the pointer, and the channel is not destroyed.
    pub(crate) unsafe fn of<'a>(channel: *mut RdmaEventChannel) -> &'a Channel {
        // SAFETY: the public part is its first member.
        unsafe { &*channel.cast() }
    }

    /// Ends it.
    ///
    /// # Safety
    /// As [`Channel::of`], and nobody uses it any more.
    pub(crate) unsafe fn close(channel: *mut RdmaEventChannel) {
        // SAFETY: as the caller guarantees; it was made as a box.
        let channel = unsafe { Box::from_raw(channel.cast::<Channel>()) };
        let numbers = channel.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, number) in numbers.iter().enumerate() {
            if let (Ok(service), Some(number)) = (service_at(place), number) {
                // Identifiers that are left keep the daemon's part: it goes with the program.
                let _ = service.done(Request::CloseChannel(*number));
            }
        }
    }
}

/// What a program does not see of an identifier.
#[derive(Default)]
pub(crate) struct Private {
    /// The channel is its own: calls wait for their event.
    pub(crate) waits: bool,
    /// What the peer sent with its request or reply.
    pub(crate) peer_parameters: Parameters,
    /// `RDMA_OPTION_ID_REUSEADDR`.
    pub(crate) shared: bool,
    /// With what queue pairs of accepted connections are made (`rdma_create_ep`).
    pub(crate) queue_pair: Option<Template>,
    /// The library made the completion queues, in that order: of sends, of receives.
    pub(crate) made: [bool; 2],
    pub(crate) made_srq: bool,
    /// Multicast groups.
    pub(crate) groups: Vec<Membership>,
}

/// Attributes for queue pairs that are made later.
pub(crate) struct Template(pub(crate) IbvQpInitAttr);

// SAFETY: the pointers of the structure are the program's, which allows all threads to use them.
unsafe impl Send for Template {}

/// An identifier.
#[repr(C)]
pub(crate) struct Id {
    pub(crate) public: RdmaCmId,
    /// Where it is: one at least.
    seats: Mutex<Vec<DeviceIdentifier>>,
    private: Mutex<Private>,
    /// Events that the program got and has not acknowledged.
    pub(crate) events: Unacknowledged,
}

impl Id {
    /// A new one, in the table.
    pub(crate) fn add(
        seat: DeviceIdentifier,
        channel: *mut RdmaEventChannel,
        context: *mut c_void,
        space: Space,
    ) -> *mut RdmaCmId {
        let (ps, kind) = match space {
            Space::Connections => (SPACE_TCP, QpKind::Rc),
            Space::Datagrams => (SPACE_UDP, QpKind::Ud),
        };
        let gid = IbvGid { raw: [0; 16] };
        let public = RdmaCmId {
            verbs: null_mut(),
            channel,
            context,
            qp: null_mut(),
            route: RdmaRoute {
                addr: RdmaAddr {
                    src: address::none(),
                    dst: address::none(),
                    ibaddr: RdmaIbAddr { sgid: gid, dgid: gid, pkey: 0 },
                },
                path_rec: null_mut(),
                num_paths: 0,
            },
            ps,
            port_num: 0,
            event: null_mut(),
            send_cq_channel: null_mut(),
            send_cq: null_mut(),
            recv_cq_channel: null_mut(),
            recv_cq: null_mut(),
            srq: null_mut(),
            pd: null_mut(),
            qp_type: kind.code().into(),
        };
        let (seats, private) = (Mutex::new(vec![seat]), Mutex::default());
        let id = Box::into_raw(Box::new(Id { public, seats, private, events: Unacknowledged::default() })).cast();
        seat.service.ids().insert(seat.number, id);
        id
    }

    /// The identifier behind the public part.
    ///
    /// # Safety
    /// [`Id::add`] made it, and it is not destroyed.
    pub(crate) unsafe fn of<'a>(id: *mut RdmaCmId) -> &'a Id {
        // SAFETY: the public part is its first member.
        unsafe { &*id.cast() }
    }

    /// Where it is; the first place, where it is at all devices.
    pub(crate) fn seat(&self) -> DeviceIdentifier {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)[0]
    }

    /// All places where it is.
    pub(crate) fn seats(&self) -> Vec<DeviceIdentifier> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It is there from now on, and nowhere else.
    ///
    /// # Safety
    /// [`Id::add`] made the identifier, and it is not destroyed.
    pub(crate) unsafe fn sit(id: *mut RdmaCmId, to: Vec<DeviceIdentifier>) {
        // SAFETY: as the caller guarantees.
        let of = unsafe { Id::of(id) };
        for seat in &to {
            seat.service.ids().insert(seat.number, id);
        }
        let still_used: Vec<(usize, Number)> = to.iter().map(|seat| (seat.service.place, seat.number)).collect();
        let before = std::mem::replace(&mut *of.seats.lock().unwrap_or_else(PoisonError::into_inner), to);
        for seat in before.into_iter().filter(|seat| !still_used.contains(&(seat.service.place, seat.number))) {
            // Where the daemon has gone, so has the seat.
            let _ = seat.destroy();
        }
    }

    /// What it is for.
    pub(crate) fn space(&self) -> Space {
        if self.is_datagrams() { Space::Datagrams } else { Space::Connections }
    }

    pub(crate) fn private(&self) -> MutexGuard<'_, Private> {
        self.private.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is for datagrams.
    pub(crate) fn is_datagrams(&self) -> bool {
        self.public.ps == SPACE_UDP
    }
}

/// An identifier belongs to the device from now on; its own address is written where programs read it.
///
/// # Safety
/// The identifier is not destroyed.
pub(crate) unsafe fn bind(service: &Service, id: *mut RdmaCmId, local: SocketAddrV4) {
    // SAFETY: as the caller guarantees.
    let id = unsafe { &mut *id };
    address::write(&mut id.route.addr.src, local);
    if !local.ip().is_unspecified() {
        (id.verbs, id.port_num) = (service.context, 1);
        id.route.addr.ibaddr.sgid = IbvGid { raw: local.ip().to_ipv6_mapped().octets() };
        id.route.addr.ibaddr.pkey = 0xffff;
    }
}

/// The peer's address is written where programs read it.
///
/// # Safety
/// The identifier is not destroyed.
pub(crate) unsafe fn name_peer(id: *mut RdmaCmId, remote: SocketAddrV4) {
    // SAFETY: as the caller guarantees.
    let id = unsafe { &mut *id };
    address::write(&mut id.route.addr.dst, remote);
    id.route.addr.ibaddr.dgid = IbvGid { raw: remote.ip().to_ipv6_mapped().octets() };
}
