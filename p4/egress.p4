// Egress: the transport logic and all state that changes (thesis 5.3, figures 5.4 to 5.6). Each register is touched
// once in a pass. Traffic manager and port never drop behind it, so what it decided happens.

struct egress_headers_t {
    seg_h seg;
    dma_h dma;
#ifdef SHARED_LOG
    log_h log;
#endif
    ethernet_h ethernet;
    ipv4_h ipv4;
    ipv6_h ipv6;
    tcp_h tcp;
#ifdef TIMELY
    timestamps_h timestamps;
#endif
#ifdef SACK
    sack_h sack;
#endif
}

struct egress_metadata_t {
    // Registers as they were before this segment.
    bit<32> rx_next;
    bit<32> rx_edge;
    bit<32> snd_una;
    bit<32> snd_max;
    bit<32> snd_edge;
    bit<16> place;         // of a received segment: RX_WITHIN, or where it lies instead
    // Serial-number differences (RFC 9293 3.4): the sign bit decides.
    bit<32> from_next;     // seq - rx_next: 0 or negative begins in order
    bit<32> end_from_next; // seq_end - rx_next: positive brings new bytes
    bit<32> room;          // rx_edge - seq_end: negative exceeds the window; then what is advertised
    bit<32> acked;         // ack - snd_una
    bit<32> unacked;       // snd_max - ack
    bit<32> behind;        // ack + the peer's largest window - snd_una: negative is older than any window
    bit<32> edge_moved;    // ack_edge - snd_edge
    bit<8> rx;             // verdicts: RX_ of reassembly.p4, TX_ of transmission.p4
    bit<8> tx;
    bit<32> una;
    bit<32> head_before;   // the out-of-order interval before this segment
    bit<32> tail_before;
    bit<32> ooo_head;      // and after it
    bit<32> ooo_tail;
    bit<32> before_head;   // from_next - ooo_head: negative was not taken in
    bit<32> behind_tail;   // ooo_tail - end_from_next: likewise
    bit<8> dup_acks;
    bit<32> credits;
    bit<32> length;
    bit<32> skip;
    bit<16> tcp_len;
    bit<16> payload_sum;
    bit<8> notes;
#ifdef TIMELY
    bit<32> clock;         // of this flow before that of all, ms
    bit<32> now;           // ns, odd; then the round-trip time
    bit<32> timed_end;     // acknowledgement number of the timed segment; then how far it was passed
    bit<32> timed_start;
#endif
#ifdef DELAYED_ACKS
    bit<8> waiting;        // segments whose acknowledgement is delayed, with this one
#endif
#ifdef SHARED_LOG
    bit<16> log;           // which one the flow's records go to
    bit<8> log_known;
    bit<32> log_mask;      // cuts to whole records
    bit<32> log_end;       // of the segment's last record: bytes since the flow's first
    bit<32> log_new;       // bytes that get a place now
    bit<32> log_into;      // from the first of these to the segment's first byte; negative: it has a place already
#endif
    bit<8> options;        // TCP options that the peer agreed to: OPTION_
    // The pseudo segment.
    bit<8> pseudo_kind;
    bit<32> pseudo_seq;
    bit<32> pseudo_end;
    MirrorId_t session;
}

parser LaminarEgressParser(
    packet_in pkt,
    out egress_headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md)
{
    state start {
        pkt.extract(eg_intr_md);
        pkt.extract(hdr.seg);
        meta.place = 0;
        meta.rx = 0;
        meta.tx = 0;
        meta.head_before = 0;
        meta.tail_before = 0;
        meta.ooo_head = 0;
        meta.ooo_tail = 0;
        meta.skip = 0;
        meta.before_head = 0;
        meta.behind_tail = 0;
        meta.dup_acks = 0;
        meta.credits = 0;
        meta.payload_sum = 0;
        meta.options = 0;
#ifdef TIMELY
        meta.clock = 0;
        meta.timed_start = 0;
#endif
#ifdef DELAYED_ACKS
        meta.waiting = 0;
#endif
#ifdef SHARED_LOG
        meta.log_known = 0;
#endif
        meta.session = SESSION_ACK;
        transition accept;
    }
}

#include "reassembly.p4"
#include "transmission.p4"
#ifdef TIMELY
#include "timely.p4"
#endif
#ifdef SACK
#include "sack.p4"
#endif
#ifdef DELAYED_ACKS
#include "delayed_acks.p4"
#endif
#ifdef SHARED_LOG
#include "shared_log.p4"
#endif

control LaminarEgress(
    inout egress_headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md)
{
#ifdef TIMELY
    Paws() paws;
#endif
    Acceptance() acceptance;
    TransmitWindow() transmit_window;
    Reassembly() reassembly;
    Transmission() transmission;
#ifdef TIMELY
    Timely() timely;
#endif
#ifdef SACK
    Sack() sack;
#endif
#ifdef DELAYED_ACKS
    DelayedAcks() delayed_acks;
#endif
#ifdef SHARED_LOG
    SharedLog() shared_log;
#endif

    // ---- the window that is advertised ----
    // Meets RFC 9293: MUST-1, REC-1.
    // Meets RFC 7323: 2.3-b.

    action scaled() {
        meta.room = meta.room >> RX_SCALE;
    }

    table scaling {
        key = { meta.options: ternary; }
        actions = { scaled; NoAction; }
        const entries = {
            OPTION_UNSCALED &&& OPTION_UNSCALED: NoAction();
        }
        const default_action = scaled();
    }

    action fits() {
        hdr.tcp.window = (bit<16>)meta.room;
    }

    action full() {
        hdr.tcp.window = 0xffff;
    }

    table window {
        key = { meta.room: ternary; }
        actions = { fits; full; }
        const entries = {
            0 &&& 0xffff0000: fits();
        }
        const default_action = full();
    }

    // ---- headers of what goes to the network: by kind, and by flow ----

    action network_headers() {
        hdr.ethernet.setValid();
        hdr.ipv4.setValid();
        hdr.tcp.setValid();
    }

    // A pseudo segment acknowledges what it covers.
    action ack_headers() {
        network_headers();
        hdr.tcp.seq_no = meta.snd_max;
        hdr.tcp.ack_no = hdr.seg.seq_end;
        hdr.ipv4.total_len = 40;
        hdr.ipv4.ecn = 0;
        meta.tcp_len = 20;
    }

    action tx_headers() {
        network_headers();
        hdr.tcp.seq_no = hdr.seg.ack;
        hdr.tcp.ack_no = meta.rx_next;
        hdr.ipv4.total_len = hdr.seg.length + 40;
        hdr.ipv4.ecn = (bit<2>)hdr.seg.marks;
        meta.tcp_len = hdr.seg.length + 20;
        meta.payload_sum = hdr.seg.sum;
    }

    action sync_headers() {
        network_headers();
        hdr.tcp.seq_no = meta.snd_max;
        hdr.tcp.ack_no = meta.rx_next;
        hdr.ipv4.total_len = 40;
        hdr.ipv4.ecn = 0;
        meta.tcp_len = 20;
    }

    table kinds {
        key = { hdr.seg.kind: exact; }
        actions = { ack_headers; tx_headers; sync_headers; NoAction; }
        const entries = {
            KIND_ACK: ack_headers();
            KIND_MERGE: ack_headers();
            KIND_TX: tx_headers();
            KIND_SYNC: sync_headers();
        }
        const default_action = NoAction();
    }

    // One copy of the addresses, for TX and for acknowledgements.

    action addresses(
        bit<48> dst_mac, bit<48> src_mac, bit<32> src, bit<32> dst, bit<16> src_port, bit<16> dst_port,
#ifdef TIMELY
        bit<32> clock,
#endif
        bit<8> options)
    {
#ifdef TIMELY
        meta.clock = clock;
#endif
        meta.options = options;
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.ether_type = 0x0800;
        hdr.ipv4.version_ihl = 0x45;
        hdr.ipv4.dscp = 0;
        hdr.ipv4.identification = 0;
        hdr.ipv4.flags_fragment = 0x4000;
        hdr.ipv4.ttl = 64;
        hdr.ipv4.protocol = 6;
        hdr.ipv4.src_addr = src;
        hdr.ipv4.dst_addr = dst;
        hdr.tcp.src_port = src_port;
        hdr.tcp.dst_port = dst_port;
        hdr.tcp.data_offset = 5;
        hdr.tcp.reserved = 0;
        hdr.tcp.flags = hdr.seg.flags;
        hdr.tcp.urgent = 0;
    }

    // Over IPv6 the one IP header takes the other's place, with its ECN bits.
    action addresses_v6(
        bit<48> dst_mac, bit<48> src_mac, bit<128> src, bit<128> dst, bit<16> src_port, bit<16> dst_port,
#ifdef TIMELY
        bit<32> clock,
#endif
        bit<8> options)
    {
#ifdef TIMELY
        meta.clock = clock;
#endif
        meta.options = options;
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.ether_type = 0x86dd;
        hdr.ipv4.setInvalid();
        hdr.ipv6.setValid();
        hdr.ipv6.version = 6;
        hdr.ipv6.dscp = 0;
        hdr.ipv6.ecn = hdr.ipv4.ecn;
        hdr.ipv6.flow_label = 0;
        hdr.ipv6.payload_len = meta.tcp_len;
        hdr.ipv6.next_hdr = 6;
        hdr.ipv6.hop_limit = 64;
        hdr.ipv6.src_addr = src;
        hdr.ipv6.dst_addr = dst;
        hdr.tcp.src_port = src_port;
        hdr.tcp.dst_port = dst_port;
        hdr.tcp.data_offset = 5;
        hdr.tcp.reserved = 0;
        hdr.tcp.flags = hdr.seg.flags;
        hdr.tcp.urgent = 0;
    }

    table headers {
        key = { hdr.seg.flow: exact; }
        actions = { addresses; addresses_v6; NoAction; }
        default_action = NoAction();
        size = FLOWS;
    }

    // ---- what leaves ----

    action transfer(bit<8> op, bit<8> more) {
        hdr.dma.setValid();
        hdr.dma.op = op;
        hdr.dma.flags = meta.notes | more;
        hdr.dma.context = hdr.seg.context;
        hdr.dma.flow = hdr.seg.flow;
        hdr.dma.sum = 0;
        hdr.dma._pad = 0;
        hdr.dma.address = hdr.seg.address;
        hdr.dma.una = meta.una;
        hdr.dma.credits = meta.credits;
    }

    // Payload, in order or out of it. The application can read up to where the pseudo segment ends.
    action deliver() {
        transfer(DMA_RX, 0);
        hdr.dma.length = hdr.seg.length;
        hdr.dma.skip = meta.skip;
        hdr.dma.position = meta.pseudo_end;
        hdr.dma.edge = hdr.seg.ack_edge;
        eg_dprsr_md.mirror_type = MIRROR_ACK;
        eg_dprsr_md.mirror_egress_port = hdr.seg.port;
    }

    // No payload to place, but something to say.
    action tell(bit<8> more) {
        transfer(DMA_RX, more);
        hdr.dma.length = 0;
        hdr.dma.skip = 0;
        hdr.dma.position = meta.rx_next;
        hdr.dma.edge = hdr.seg.ack_edge;
    }

    // About the transmit direction.
    action notify() {
        tell(0);
    }

    // Two ends that disagree would answer each other's answers for ever: the host counts them (RFC 5961 section 7).
    action challenge() {
        tell(DMA_CHALLENGE);
    }

    action notify_and_reply() {
        notify();
        eg_dprsr_md.mirror_type = MIRROR_ACK;
        eg_dprsr_md.mirror_egress_port = hdr.seg.port;
    }

    // Nothing of it is wanted, but the peer should know where we are.
    action reply() {
        eg_dprsr_md.mirror_type = MIRROR_ACK;
        eg_dprsr_md.mirror_egress_port = hdr.seg.port;
        eg_dprsr_md.drop_ctl = 1;
    }

    action granted() {
        transfer(DMA_GRANT, 0);
        hdr.dma.length = 0;
        hdr.dma.skip = 0;
        hdr.dma.position = meta.rx_next;
        hdr.dma.edge = meta.snd_edge;
    }

    action discard() {
        eg_dprsr_md.drop_ctl = 1;
    }

    table finish {
        key = {
            hdr.seg.kind: ternary;
            meta.rx: ternary;
            meta.tx: ternary;
            meta.pseudo_kind: ternary;
            meta.before_head: ternary;
            meta.behind_tail: ternary;
            meta.credits: ternary;
            meta.dup_acks: ternary;
        }
        actions = { deliver; notify; challenge; notify_and_reply; reply; granted; discard; NoAction; }
        // NoAction lets a segment to the network pass.
        const entries = {
#ifdef TIMELY
            (KIND_OLD, _, _, _, _, _, _, _): challenge();
#endif
            (KIND_RX, RX_CHALLENGE, _, _, _, _, _, _): challenge();
            (KIND_RX, RX_IN_ORDER, _, _, _, _, _, _): deliver();
            // Out of order: taken in if the interval reaches around it; with a merge on its way, if it ends there.
            (KIND_RX, RX_OUT_OF_ORDER, _, KIND_MERGE, _, 0, _, _): deliver();
            (KIND_RX, RX_OUT_OF_ORDER, _, KIND_ACK, 0 &&& 0x80000000, 0 &&& 0x80000000, _, _): deliver();
#ifdef NOTIFY_ACKS
            (KIND_RX, RX_OUT_OF_ORDER, TX_ACKED, _, _, _, _, _): notify_and_reply();
            (KIND_RX, RX_OUT_OF_ORDER, TX_WINDOW, _, _, _, _, _): notify_and_reply();
            (KIND_RX, RX_DUPLICATE, TX_ACKED, _, _, _, _, _): notify_and_reply();
            (KIND_RX, RX_DUPLICATE, TX_WINDOW, _, _, _, _, _): notify_and_reply();
#endif
            (KIND_RX, RX_OUT_OF_ORDER, _, _, _, _, _, _): reply();
            (KIND_RX, RX_DUPLICATE, TX_DUP_ACK, _, _, _, _, 3): notify_and_reply();
            (KIND_RX, RX_DUPLICATE, _, _, _, _, _, _): reply();
            (KIND_RX, _, TX_DUP_ACK, _, _, _, _, 3): notify();
#ifdef NOTIFY_ACKS
            (KIND_RX, _, TX_ACKED, _, _, _, _, _): notify();
            (KIND_RX, _, TX_WINDOW, _, _, _, _, _): notify();
            (KIND_RX, _, TX_DUP_ACK, _, _, _, _, 1): notify();
            (KIND_RX, _, TX_DUP_ACK, _, _, _, _, 2): notify();
#endif
            (KIND_RX, _, _, _, _, _, _, _): discard();
            (KIND_TX, _, TX_SEND, _, _, _, 0, _): discard();
            (KIND_TX, _, TX_SEND, _, _, _, _, _): NoAction();
            (KIND_TX, _, _, _, _, _, _, _): discard();
            (KIND_ACK, _, _, _, _, _, _, _): NoAction();
            (KIND_MERGE, RX_IN_ORDER, _, _, _, _, _, _): NoAction();
            (KIND_SYNC, _, _, _, _, _, _, _): NoAction();
            (KIND_GRANT, _, _, _, _, _, _, _): granted();
        }
        const default_action = discard();
    }

    apply {
#ifdef TIMELY
        paws.apply(hdr, meta);
#endif
        acceptance.apply(hdr, meta);
        transmit_window.apply(hdr, meta);
        reassembly.apply(hdr, meta);
        transmission.apply(hdr, meta);
        kinds.apply();
        // What stays in the host has no version.
        if (hdr.tcp.isValid()) {
            headers.apply();
        }
        scaling.apply();
        window.apply();
        finish.apply();
#ifdef TIMELY
        timely.apply(hdr, meta, eg_prsr_md);
#endif
#ifdef SACK
        sack.apply(hdr, meta);
#endif
#ifdef DELAYED_ACKS
        delayed_acks.apply(hdr, meta, eg_dprsr_md);
#endif
#ifdef SHARED_LOG
        shared_log.apply(hdr, meta);
#endif
    }
}

control LaminarEgressDeparser(
    packet_out pkt,
    inout egress_headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md)
{
    Checksum() ip_checksum;
#ifndef PORT_CHECKSUMS
    Checksum() tcp_checksum;
    Checksum() tcp_checksum_v6;
#endif
    Mirror() mirror;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.hdr_checksum = ip_checksum.update({
                hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.identification,
                hdr.ipv4.flags_fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr });
        }
#ifndef PORT_CHECKSUMS
        if (hdr.ipv4.isValid()) {
            // Tofino can't sum a payload (thesis 5.4); the DMA engine did when it read it.
            hdr.tcp.checksum = tcp_checksum.update({
                hdr.ipv4.src_addr, hdr.ipv4.dst_addr, 8w0, hdr.ipv4.protocol, meta.tcp_len, hdr.tcp.src_port,
                hdr.tcp.dst_port, hdr.tcp.seq_no, hdr.tcp.ack_no, hdr.tcp.data_offset, hdr.tcp.reserved,
                hdr.tcp.flags, hdr.tcp.window, hdr.tcp.urgent,
#ifdef TIMELY
                hdr.timestamps.kinds, hdr.timestamps.value, hdr.timestamps.echo,
#endif
#ifdef SACK
                hdr.sack.kinds, hdr.sack.left, hdr.sack.right,
#endif
                meta.payload_sum });
        }
        if (hdr.ipv6.isValid()) {
            hdr.tcp.checksum = tcp_checksum_v6.update({
                hdr.ipv6.src_addr, hdr.ipv6.dst_addr, 8w0, hdr.ipv6.next_hdr, meta.tcp_len, hdr.tcp.src_port,
                hdr.tcp.dst_port, hdr.tcp.seq_no, hdr.tcp.ack_no, hdr.tcp.data_offset, hdr.tcp.reserved,
                hdr.tcp.flags, hdr.tcp.window, hdr.tcp.urgent,
#ifdef TIMELY
                hdr.timestamps.kinds, hdr.timestamps.value, hdr.timestamps.echo,
#endif
#ifdef SACK
                hdr.sack.kinds, hdr.sack.left, hdr.sack.right,
#endif
                meta.payload_sum });
        }
#endif
        if (eg_dprsr_md.mirror_type == MIRROR_ACK) {
            mirror.emit<seg_h>(meta.session, {
                meta.pseudo_kind, hdr.seg.flags, hdr.seg.marks, hdr.seg._pad, hdr.seg.stamped, hdr.seg.port, hdr.seg.notes,
                hdr.seg.flow, hdr.seg.context, hdr.seg.length, hdr.seg.sum, meta.pseudo_seq, meta.pseudo_end,
                hdr.seg.ack, hdr.seg.ack_edge,
#ifdef TIMELY
                meta.pseudo_end,
#else
                hdr.seg.amount,
#endif
                hdr.seg.grant, hdr.seg.address });
        }
        pkt.emit(hdr.dma);
#ifdef SHARED_LOG
        pkt.emit(hdr.log);
#endif
        pkt.emit(hdr.ethernet);
        pkt.emit(hdr.ipv4);
        pkt.emit(hdr.ipv6);
        pkt.emit(hdr.tcp);
#ifdef TIMELY
        pkt.emit(hdr.timestamps);
#endif
#ifdef SACK
        pkt.emit(hdr.sack);
#endif
    }
}
