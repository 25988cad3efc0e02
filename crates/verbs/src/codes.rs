//! Codes of `infiniband/verbs.h`.
use serde::{Deserialize, Serialize};

/// Declares an enumeration with the codes of verbs, and how to make it of a code.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:expr),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant = $code),+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The one with this code; `None` where there is none.
            #[inline]
            pub const fn from_code(code: u8) -> Option<$name> {
                match code {
                    $(code if code == $name::$variant as u8 => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// Its code in verbs.
            #[inline]
            pub const fn code(self) -> u8 {
                self as u8
            }
        }
    };
}

codes! {
    /// What a queue pair transports (`enum ibv_qp_type`).
    QpKind {
        /// Reliable connection.
        Rc = 2,
        /// Unreliable connection.
        Uc = 3,
        /// Unreliable datagram.
        Ud = 4,
        /// Raw Ethernet frames.
        RawPacket = 8,
        /// The sending half of an extended reliable connection.
        XrcSend = 9,
        /// Its receiving half.
        XrcReceive = 10,
    }
}

codes! {
    /// The state of a queue pair (`enum ibv_qp_state`; IBTA 1.3, 10.3.1).
    QpState {
        /// Made, or reset.
        Reset = 0,
        /// Receive work requests can be posted.
        Init = 1,
        /// Ready to receive.
        ReadyToReceive = 2,
        /// Ready to send.
        ReadyToSend = 3,
        /// The send queue drains.
        SendQueueDrained = 4,
        /// A send work request of an unreliable queue pair failed.
        SendQueueError = 5,
        /// All work requests are flushed.
        Error = 6,
    }
}

codes! {
    /// What a send work request asks for (`enum ibv_wr_opcode`).
    SendOpcode {
        /// RDMA WRITE.
        Write = 0,
        /// RDMA WRITE with immediate data.
        WriteImmediate = 1,
        /// SEND.
        Send = 2,
        /// SEND with immediate data.
        SendImmediate = 3,
        /// RDMA READ.
        Read = 4,
        /// Atomic compare and swap.
        CompareSwap = 5,
        /// Atomic fetch and add.
        FetchAdd = 6,
        /// Invalidates a memory window of the program's own.
        LocalInvalidate = 7,
        /// Binds a memory window.
        BindWindow = 8,
        /// SEND that invalidates a key of the peer.
        SendInvalidate = 9,
    }
}

codes! {
    /// What a completion is of (`enum ibv_wc_opcode`).
    CompletionOpcode {
        /// SEND, in all forms.
        Send = 0,
        /// RDMA WRITE.
        Write = 1,
        /// RDMA READ.
        Read = 2,
        /// Atomic compare and swap.
        CompareSwap = 3,
        /// Atomic fetch and add.
        FetchAdd = 4,
        /// A window was bound.
        BindWindow = 5,
        /// A window was invalidated.
        LocalInvalidate = 6,
        /// A message was received.
        Receive = 128,
        /// A peer's RDMA WRITE with immediate data took a receive work request.
        ReceiveWriteImmediate = 129,
    }
}

codes! {
    /// How a work request ended (`enum ibv_wc_status`; IBTA 1.3, 10.10.3).
    Status {
        /// As asked.
        Success = 0,
        /// The message was longer than its receive work request, or than the transport allows.
        LocalLength = 1,
        /// The queue pair could not do that.
        LocalQpOperation = 2,
        /// A scatter-gather entry is outside its region, or the region does not permit the access.
        LocalProtection = 4,
        /// The queue pair was in the error state.
        Flushed = 5,
        /// A window could not be bound.
        WindowBind = 6,
        /// The peer's answer was not one that may come.
        BadResponse = 7,
        /// A message for a receive work request's memory failed in its protection.
        LocalAccess = 8,
        /// The peer refused the request as invalid.
        RemoteInvalidRequest = 9,
        /// The peer refused the access.
        RemoteAccess = 10,
        /// The peer failed in the operation.
        RemoteOperation = 11,
        /// The peer did not answer, within `retry_cnt` repetitions.
        RetryExceeded = 12,
        /// The peer had no receive work request, within `rnr_retry` repetitions.
        RnrRetryExceeded = 13,
        /// The peer gave the operation up.
        RemoteAborted = 17,
        /// Something failed that has no other name.
        General = 21,
    }
}

codes! {
    /// What happened to an object besides completions (`enum ibv_event_type`).
    AsyncEvent {
        /// A completion queue was full.
        CompletionQueueError = 0,
        /// A queue pair went to the error state.
        QpFatal = 1,
        /// A peer's request was invalid.
        QpRequestError = 2,
        /// A peer's request violated an access right.
        QpAccessError = 3,
        /// A message came before the program accepted the connection.
        CommunicationEstablished = 4,
        /// The send queue has drained.
        SendQueueDrained = 5,
        /// The daemon has gone.
        DeviceFatal = 8,
        /// A shared receive queue is in error.
        SrqError = 14,
        /// A shared receive queue has fewer work requests than its limit.
        SrqLimitReached = 15,
        /// A queue pair took its last work request of a shared receive queue.
        LastReceiveReached = 16,
    }
}

codes! {
    /// Payload bytes of a packet at most (`enum ibv_mtu`).
    Mtu {
        /// 256 bytes.
        B256 = 1,
        /// 512 bytes.
        B512 = 2,
        /// 1024 bytes.
        B1024 = 3,
        /// 2048 bytes.
        B2048 = 4,
        /// 4096 bytes.
        B4096 = 5,
    }
}

impl Mtu {
    /// In bytes.
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// The largest one whose packets fit into IP packets of `ip_mtu` bytes: besides payload they have at most an IPv6
    /// header, UDP, BTH, RETH, immediate data and the ICRC. `None` below the smallest.
    pub fn fitting(ip_mtu: usize) -> Option<Mtu> {
        const MOST_HEADERS: usize = 40 + 8 + 12 + 16 + 4 + 4;
        Mtu::ALL.iter().copied().rev().find(|mtu| mtu.bytes() + MOST_HEADERS <= ip_mtu)
    }
}

impl QpKind {
    /// Each packet is acknowledged, or sent again.
    #[inline]
    pub const fn is_reliable(self) -> bool {
        matches!(self, QpKind::Rc | QpKind::XrcSend | QpKind::XrcReceive)
    }

    /// It has one peer.
    #[inline]
    pub const fn is_connected(self) -> bool {
        !matches!(self, QpKind::Ud | QpKind::RawPacket)
    }
}

impl SendOpcode {
    /// What its completion reports.
    pub const fn completes_as(self) -> CompletionOpcode {
        match self {
            SendOpcode::Write | SendOpcode::WriteImmediate => CompletionOpcode::Write,
            SendOpcode::Send | SendOpcode::SendImmediate | SendOpcode::SendInvalidate => CompletionOpcode::Send,
            SendOpcode::Read => CompletionOpcode::Read,
            SendOpcode::CompareSwap => CompletionOpcode::CompareSwap,
            SendOpcode::FetchAdd => CompletionOpcode::FetchAdd,
            SendOpcode::LocalInvalidate => CompletionOpcode::LocalInvalidate,
            SendOpcode::BindWindow => CompletionOpcode::BindWindow,
        }
    }

    /// Whether it is one of the two atomics.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, SendOpcode::CompareSwap | SendOpcode::FetchAdd)
    }

    /// It is carried out here, and no packet is sent.
    #[inline]
    pub const fn is_local(self) -> bool {
        matches!(self, SendOpcode::LocalInvalidate | SendOpcode::BindWindow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_and_others_are_refused() {
        for status in Status::ALL {
            assert_eq!(Status::from_code(status.code()), Some(*status));
        }
        assert_eq!(Status::from_code(3), None);
        assert_eq!(QpKind::from_code(5), None);
        assert_eq!(SendOpcode::from_code(10), None);
    }

    #[test]
    fn an_ethernet_frame_of_1500_carries_1024() {
        assert_eq!(Mtu::fitting(1500), Some(Mtu::B1024));
        assert_eq!(Mtu::fitting(4200), Some(Mtu::B4096));
        assert_eq!(Mtu::fitting(300), None);
        assert_eq!(Mtu::B4096.bytes(), 4096);
    }
}
