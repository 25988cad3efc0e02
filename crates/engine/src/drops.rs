//! Drop reasons: whatever a host does not pass on is counted here, by name.
use port::PortDrop;
use port::drops::{Counts, Set};
use wire::tcp::Unacceptable;

port::drop_reasons! {
    /// Why a frame, a segment, a part of its payload or a descriptor was not processed.
    DropReason {
        /// The IP header is malformed, its checksum is wrong, or it has addresses that may not be there.
        Ip = "ip",
        /// The packet is not addressed to this host.
        NotOurs = "not_ours",
        /// IP fragments are not reassembled: TCP peers avoid them by path MTU discovery.
        Fragment = "fragment",
        /// The protocol is neither TCP nor ICMP.
        Protocol = "protocol",
        /// The TCP header or an option in it is malformed, or the UDP header of a ZeroNIC datagram.
        TcpHeader = "tcp_header",
        /// The checksum of TCP, or of a ZeroNIC datagram, is wrong, or the sender left it to a device
        /// (there: ethtool -K DEVICE tx off).
        TcpChecksum = "tcp_checksum",
        /// The ICMP message is malformed, unsolicited or does not fit what it claims to answer.
        Icmp = "icmp",
        /// No connection and no listener: answered with RST where the RFC asks for it.
        NoFlow = "no_flow",
        /// The timestamp is older than the last one seen (PAWS, RFC 7323 section 5).
        Paws = "paws",
        /// The sequence number is outside the receive window.
        OutsideWindow = "outside_window",
        /// All of the payload was received before.
        Duplicate = "duplicate",
        /// Out of order, and not next to an interval that is kept, nor with a place for another one.
        OutOfOrder = "out_of_order",
        /// A part of the payload was beyond the receive window and was cut off.
        Trimmed = "trimmed",
        /// It acknowledges what was never sent (RFC 5961 section 5).
        AckBeyondSent = "ack_beyond_sent",
        /// An old acknowledgement outside the acceptable range (RFC 5961 section 5).
        AckTooOld = "ack_too_old",
        /// A segment without ACK on an established connection.
        NoAck = "no_ack",
        /// RST outside the window, or inside but not exact: challenged (RFC 5961 section 3).
        RstChallenged = "rst_challenged",
        /// SYN on an established connection: challenged (RFC 5961 section 4).
        SynChallenged = "syn_challenged",
        /// The limit on challenge acknowledgements was reached (RFC 5961 section 7).
        ChallengeLimit = "challenge_limit",
        /// Data after the application closed the connection.
        AfterClose = "after_close",
        /// The listener's backlog is full.
        Backlog = "backlog",
        /// Too many handshakes to remember: the SYN was answered with a cookie (RFC 4987) and forgotten.
        SynCookie = "syn_cookie",
        /// The flow table is full.
        FlowTable = "flow_table",
        /// The daemon got no more memory: it serves the connections that there are, and takes no others until it gets
        /// some again.
        NoMemory = "no_memory",
        /// The connection is set up but no application has asked for it yet.
        NotAccepted = "not_accepted",
        /// A frame waited for address resolution and another one took its place, or nobody answered.
        NeighbourUnresolved = "neighbour_unresolved",
        /// No route to the destination.
        NoRoute = "no_route",
        /// A descriptor of an application named no connection of its context, or one that is over.
        BumpUnknown = "bump_unknown",
        /// A descriptor of an application carried impossible positions.
        BumpRange = "bump_range",
        /// An application's ring was corrupt: its context was detached.
        RingCorrupt = "ring_corrupt",
        /// A module dropped the frame (XDP_DROP): `opentoe xdp ls` shows which.
        ModuleDrop = "module_drop",
        /// A module failed on the frame (XDP_ABORTED, or it was stopped): `opentoe xdp ls` shows which.
        ModuleAborted = "module_aborted",
        /// A segment of two connections that are joined, with an impossible sequence number or no hops left.
        SpliceRefused = "splice_refused",
        /// An application's request was malformed or named what is not its own.
        RequestInvalid = "request_invalid",
        /// A socket that a program passed to another process was not taken in time: that process is not on this host,
        /// or did not check.
        PassNotAdopted = "pass_not_adopted",
        /// A congestion notification for a queue pair that is not connected, or whose host limits no rates
        /// (`rdma_congestion`).
        CnpIgnored = "cnp_ignored",
        /// A RoCEv2 packet is malformed: its headers, its length, or an opcode that is not of its queue pair's service.
        RoceHeader = "roce_header",
        /// A RoCEv2 packet's ICRC is wrong.
        RoceIcrc = "roce_icrc",
        /// A RoCEv2 packet or a work request names a queue pair that is not there or takes none.
        /// Or the packet is from another host than its peer.
        QpUnknown = "qp_unknown",
        /// A datagram for the general services interface that is no message of connection management, or from none.
        MadInvalid = "mad_invalid",
        /// A message of connection management about a connection or a listener that is not there.
        MadUnknown = "mad_unknown",
        /// The queue pair's state takes no such packet or work request.
        QpState = "qp_state",
        /// A RoCEv2 request that was received before: acknowledged or answered again.
        PsnDuplicate = "psn_duplicate",
        /// A RoCEv2 request after one that is missing: the peer sends it again.
        PsnAhead = "psn_ahead",
        /// A RoCEv2 response to nothing that is outstanding.
        ResponseStale = "response_stale",
        /// A RoCEv2 request that was refused: the peer violated a right, or the protocol.
        RequestRefused = "request_refused",
        /// A message found no receive work request; on a reliable connection the peer sends it again.
        NoReceive = "no_receive",
        /// A datagram's queue key is not that of the queue pair.
        QueueKey = "queue_key",
        /// A datagram for a multicast group that no queue pair of the host is a member of.
        GroupUnknown = "group_unknown",
        /// A datagram of a ZeroNIC host's RDMA device, or a question about one, to a host that takes no connection,
        /// or takes nothing from it for a second.
        HostUnreachable = "host_unreachable",
        /// A message of an unreliable service was longer than its receive work request, or had parts missing.
        MessageIncomplete = "message_incomplete",
        /// Payload of a ZeroNIC connection for which no receive is posted, more than is kept: the peer sends it again.
        NoPlace = "no_place",
        /// Payload of a ZeroNIC connection above more holes than are remembered: the peer sends it again.
        PlaceHoles = "place_holes",
        /// Registered memory of a ZeroNIC connection could not be read or written: its registration has ended.
        PlaceFault = "place_fault",
        /// A frame of a ZeroNIC connection whose memory is a device's: it has as much to copy as is kept waiting.
        DeviceBusy = "device_busy",
        /// A transport of a ZeroNIC host was to send bytes that nobody has posted, or that are acknowledged.
        NotPosted = "not_posted",
        /// Payload of a ZeroNIC connection of messages without a mark that can be: it names its message.
        MessageMark = "message_mark",
        /// A message or a datagram of a ZeroNIC connection that is longer than its receive.
        MessageLength = "message_length",
    }
    with PortDrop { Ethernet, PortQueue, TooLong, FabricLoss, FabricQueue, FabricUnknown, }
    from Unacceptable {
        Paws, OutsideWindow, Duplicate, AckBeyondSent, AckTooOld, NoAck, RstChallenged, SynChallenged,
    }
}

/// A set of reasons.
pub type DropSet = Set<DropReason>;

/// A counter for each reason.
pub type DropCounts = Counts<DropReason>;
