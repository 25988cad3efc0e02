// Headers and names shared by both halves of the Laminar pipeline.

#ifndef FLOWS
#define FLOWS 32768
#endif
#ifndef CONTEXTS
#define CONTEXTS 1024
#endif
// Logs at once.
#ifndef LOGS
#define LOGS 64
#endif
// Scale of the windows that this end advertises (RFC 7323): the same for every flow whose peer scales, since a pipeline
// shifts by constants only.
#ifndef RX_SCALE
#define RX_SCALE 7
#endif

// Ports by purpose. Everything else is a network port.
const PortId_t PORT_HOST = 64;    // contexts of applications: frames begin with dma_h
const PortId_t PORT_CONTROL = 65; // the control plane's own commands: frames begin with dma_h
const PortId_t PORT_CPU = 66;     // frames that the data-path does not process, and those of the control plane
const PortId_t PORT_TIMER = 6;    // packet generator

// Segments by workflow (thesis 5.2). RX..GRANT come from ingress, ACK and MERGE are pseudo segments of the mirror.
const bit<8> KIND_RX = 1;
const bit<8> KIND_TX = 2;
const bit<8> KIND_SYNC = 3;
const bit<8> KIND_GRANT = 4;
const bit<8> KIND_ACK = 5;
const bit<8> KIND_MERGE = 6;
#ifdef TIMELY
const bit<8> KIND_OLD = 7; // RX, with a timestamp older than the last one: it changes nothing
#endif

// Operations on the host's channel.
const bit<8> DMA_TX = 1;    // from the host: payload to send
const bit<8> DMA_SYNC = 2;  // from the host: receive buffer was consumed
const bit<8> DMA_GRANT = 3; // from the control plane: credits; to the host: credits and acknowledged bytes
const bit<8> DMA_RX = 4;    // to the host: payload to place, bytes to read

// Flags on the host's channel.
const bit<8> DMA_FAST_RETRANSMIT = 0x01; // to the host: send again from `una`
const bit<8> DMA_BAD_ACK = 0x02;         // to the host: an acknowledgement of bytes that were never sent
const bit<8> DMA_TX_NEW = 0x02;          // DMA_TX: payload that was never sent before; the same bit as ECT(0)
const bit<8> DMA_TIMEOUT = 0x04;         // retransmission timeout: send again from `una`
const bit<8> DMA_CHALLENGE = 0x40;       // to the host: not acceptable; it sends a challenge ACK, within its limit
const bit<8> DMA_DUP_ACK = 0x20;         // to the host: the first or the second duplicate acknowledgement (RFC 3042)
#ifdef SHARED_LOG
const bit<8> DMA_LOG_FILL = 0x10;        // to the host: some of it had its place before; only the host can find it
#endif
#ifdef DELAYED_ACKS
const bit<8> DMA_ACK_DELAYED = 0x08;     // to the host: these bytes are not acknowledged yet
#endif

const bit<8> TCP_FIN = 0x01;
const bit<8> TCP_ACK = 0x10;
const bit<8> TCP_ECE = 0x40;
const bit<8> TCP_FROM_HOST = 0x89; // FIN, PSH and CWR are the application's to set

// TCP options of a flow, by `options` of `headers`.
const bit<8> OPTION_SACK = 0x01;
const bit<8> OPTION_TIMESTAMPS = 0x02;
const bit<8> OPTION_UNSCALED = 0x04; // the peer does not scale windows

const MirrorType_t MIRROR_ACK = 1;
const MirrorId_t SESSION_ACK = 1;

header ethernet_h {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header ipv4_h {
    bit<8> version_ihl;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_len;
    bit<16> identification;
    bit<16> flags_fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> hdr_checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

// Without extension headers (RFC 8200 section 3): what has any goes to the exception path.
header ipv6_h {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow_label;
    bit<16> payload_len;
    bit<8> next_hdr;
    bit<8> hop_limit;
    bit<128> src_addr;
    bit<128> dst_addr;
}

header tcp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> seq_no;
    bit<32> ack_no;
    bit<4> data_offset;
    bit<4> reserved;
    bit<8> flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

// The options that the data-path takes, 12 bytes, one or the other: NOP, NOP, timestamps (RFC 7323 appendix A) or, with
// SACK, one block (RFC 2018 section 3).
header options_h {
    bit<32> kinds;
    bit<32> first;
    bit<32> second;
}

// NOP, NOP, timestamps, of what is sent.
header timestamps_h {
    bit<32> kinds;
    bit<32> value;
    bit<32> echo;
}

#ifdef SACK
// NOP, NOP, SACK with one block (RFC 2018 section 3).
header sack_h {
    bit<32> kinds;
    bit<32> left;
    bit<32> right;
}
#endif

// The host's channel: one such header before each transfer in either direction.
header dma_h {
    bit<8> op;
    bit<8> flags;      // from the host with DMA_TX: flags of the segment
    bit<16> context;
    bit<16> flow;
    bit<16> length;    // bytes of payload
    bit<16> sum;       // with DMA_TX: ones' complement sum of the payload, from the DMA engine
    bit<16> _pad;
    bit<32> skip;      // to the host: bytes at the front that it has already, not to be placed; perhaps all
    bit<32> address;   // to the host: where the payload begins
    bit<32> position;  // DMA_TX: stream position of the payload; DMA_SYNC: bytes consumed; DMA_GRANT: bytes granted;
                       // DMA_RX: sequence number up to which the application can read
    bit<32> una;       // to the host: oldest sequence number not acknowledged
    bit<32> edge;      // to the host: right edge of the peer's window; DMA_GRANT from control: most credits to hold;
                       // DMA_TX and DMA_SYNC: the next sequence number that the host expects
    bit<32> credits;   // to the host: bytes that may be sent
}

#ifdef SHARED_LOG
// Behind the dma_h of payload for a log. Offsets count bytes since the flow's first record.
header log_h {
    bit<32> offset;    // of the payload's first byte
    bit<32> before;    // what lies before this offset had its place in the log already
    bit<32> after;     // what lies between `before` and this has its place now:
    bit<32> place;     // here, in bytes since the log began
}
#endif

// What ingress found out about a segment, for egress; and what a pseudo segment carries: 42 bytes, of the mirror's 45.
header seg_h {
    bit<8> kind;
    bit<8> flags;      // TCP flags of what is sent: of the segment (TX) or of its acknowledgement (RX)
    bit<8> marks;      // RX: ECE of the segment; TX: ECN bits of the IP header
    bit<6> _pad;
    bit<1> stamped;    // RX: the flow has timestamps, here in `amount` (TIMELY)
    PortId_t port;     // network port of the flow
    bit<8> notes;      // DMA flags to hand on
    bit<16> flow;
    bit<16> context;
    bit<16> length;
    bit<16> sum;
    bit<32> seq;       // TX and SYNC: the next sequence number that the host expects
    bit<32> seq_end;   // SYNC: bytes consumed
    bit<32> ack;       // TX: the sequence number
    bit<32> ack_edge;  // ack + window; TX: again the end of the segment
    bit<32> amount;    // SYNC: bytes consumed; GRANT: most credits to hold
    bit<32> grant;     // GRANT: bytes
    bit<32> address;
}
