// Ingress: classify, look up, translate between sequence numbers and addresses (thesis 5.2, 5.3.3). It reads only
// tables that the control plane writes and changes no state, so a frame lost in the traffic manager is a network loss.

struct ingress_headers_t {
    seg_h seg;
    dma_h dma;
    pktgen_timer_header_t timer;
    ethernet_h ethernet;
    ipv4_h ipv4;
    ipv6_h ipv6;
    tcp_h tcp;
    options_h options;
}

struct ingress_metadata_t {
    bool checksum_bad;   // of the IPv4 header
    bit<1> known;        // the flow or context is installed
    bit<2> ecn;          // of either version's header
    bit<16> ip_len;      // bytes of the IPv4 packet, or behind the IPv6 header
    bit<16> header_len;  // of the former, IP and TCP headers
    bit<32> length;
    bit<32> window;
    bit<8> scale;
    bit<32> offset;
    bit<32> mask;
    bit<32> base;
}

parser LaminarIngressParser(
    packet_in pkt,
    out ingress_headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md)
{
    Checksum() ip_checksum;

    state start {
        pkt.extract(ig_intr_md);
        pkt.advance(PORT_METADATA_SIZE);
        meta.checksum_bad = false;
        meta.known = 0;
        meta.ecn = 0;
        meta.ip_len = 0;
        meta.header_len = 40;
        meta.scale = 0;
        transition select(ig_intr_md.ingress_port) {
            PORT_HOST: parse_dma;
            PORT_CONTROL: parse_dma;
            PORT_TIMER: parse_timer;
            default: parse_ethernet;
        }
    }

    state parse_dma {
        pkt.extract(hdr.dma);
        transition accept;
    }

    state parse_timer {
        pkt.extract(hdr.timer);
        transition accept;
    }

    state parse_ethernet {
        pkt.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x0800: parse_ipv4;
            0x86dd: parse_ipv6;
            default: accept;
        }
    }

    state parse_ipv4 {
        pkt.extract(hdr.ipv4);
        ip_checksum.add(hdr.ipv4);
        meta.checksum_bad = ip_checksum.verify();
        meta.ecn = hdr.ipv4.ecn;
        meta.ip_len = hdr.ipv4.total_len;
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.flags_fragment, hdr.ipv4.protocol) {
            (0x45, 0x0000 &&& 0x3fff, 6): parse_tcp;
            default: accept;
        }
    }

    state parse_ipv6 {
        pkt.extract(hdr.ipv6);
        meta.ecn = hdr.ipv6.ecn;
        meta.ip_len = hdr.ipv6.payload_len;
        transition select(hdr.ipv6.version, hdr.ipv6.next_hdr) {
            (6, 6): parse_tcp;
            default: accept;
        }
    }

    state parse_tcp {
        pkt.extract(hdr.tcp);
        transition select(hdr.tcp.data_offset) {
            8: parse_options;
            default: accept;
        }
    }

    state parse_options {
        transition select(pkt.lookahead<bit<32>>()) {
            0x0101080a: parse_taken;
#ifdef SACK
            0x0101050a: parse_taken;
#endif
            default: accept;
        }
    }

    // The host reads the blocks: it has the frame.
    state parse_taken {
        pkt.extract(hdr.options);
        meta.header_len = 52;
        transition accept;
    }
}

control LaminarIngress(
    inout ingress_headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)
{
    // ---- what the flow is ----

    // RX: the address of the first byte is base + ((seq + delta) & mask). What goes beyond the buffer's end goes on at
    // its begin: the host maps the buffer once, not twice in a row (thesis 5.3.3).
    action rx_flow(
        bit<16> flow, bit<16> context, PortId_t port, bit<32> delta, bit<32> mask, bit<32> base,
#ifdef TIMELY
        bit<1> stamps,
#endif
        bit<8> scale)
    {
#ifdef TIMELY
        hdr.seg.stamped = stamps;
#endif
        hdr.seg.flow = flow;
        hdr.seg.port = port;
        hdr.seg.context = context;
        meta.offset = hdr.tcp.seq_no + delta;
        meta.mask = mask;
        meta.base = base;
        meta.scale = scale;
        meta.known = 1;
    }

    table flows {
        key = {
            hdr.ipv4.src_addr: exact;
            hdr.ipv4.dst_addr: exact;
            hdr.tcp.src_port: exact;
            hdr.tcp.dst_port: exact;
        }
        actions = { rx_flow; NoAction; }
        default_action = NoAction();
        size = FLOWS;
    }

    // Of their own, since a key is as wide as its addresses. Both give the same.
    table flows_v6 {
        key = {
            hdr.ipv6.src_addr: exact;
            hdr.ipv6.dst_addr: exact;
            hdr.tcp.src_port: exact;
            hdr.tcp.dst_port: exact;
        }
        actions = { rx_flow; NoAction; }
        default_action = NoAction();
        size = FLOWS;
    }

    // TX and SYNC: only the context that owns the flow may use it.
    action tx_flow(bit<32> delta, PortId_t port, bit<8> ecn) {
        hdr.seg.seq = hdr.dma.position + delta;
        hdr.seg.port = port;
        // ECT(0) and DMA_TX_NEW are the same bit: what is sent again is not ECN-capable.
        hdr.seg.marks = ecn & hdr.dma.flags;
        meta.known = 1;
    }

    table contexts {
        key = {
            hdr.dma.flow: exact;
            hdr.dma.context: exact;
        }
        actions = { tx_flow; NoAction; }
        default_action = NoAction();
        size = FLOWS;
    }

    // GRANT: the rate that the control plane gave the flow, as bytes for each round of the packet generator. Flows
    // without an entry are paused (thesis 5.3.2.1).
    action granted(bit<16> context, bit<32> grant, bit<32> most) {
        hdr.seg.context = context;
        hdr.seg.grant = grant;
        hdr.seg.amount = most;
        meta.known = 1;
    }

    table grants {
        key = { hdr.timer.packet_id: exact; }
        actions = { granted; NoAction; }
        default_action = NoAction();
        size = FLOWS;
    }

    // ---- which workflow it is (thesis 5.2 step 1) ----

    action drop() {
        ig_dprsr_md.drop_ctl = 1;
    }

    // Not for the data-path: forwarded below, or the exception path.
    action foreign() {
        hdr.seg.setInvalid();
    }

    // Exception path: the frame as it came.
    action to_cpu() {
        ig_tm_md.ucast_egress_port = PORT_CPU;
        ig_tm_md.bypass_egress = 1;
    }

    action rx(bit<8> reply) {
        hdr.seg.kind = KIND_RX;
        hdr.seg.flags = reply;
        hdr.seg.marks = hdr.tcp.flags & TCP_ECE;
        hdr.seg.seq = hdr.tcp.seq_no;
        hdr.seg.ack = hdr.tcp.ack_no;
        hdr.seg.notes = 0;
        hdr.ethernet.setInvalid();
        hdr.ipv4.setInvalid();
        hdr.ipv6.setInvalid();
        hdr.tcp.setInvalid();
        hdr.options.setInvalid();
        ig_tm_md.ucast_egress_port = PORT_HOST;
    }

    action tx() {
        hdr.seg.kind = KIND_TX;
        hdr.seg.flags = hdr.seg.flags | TCP_ACK;
        hdr.seg.notes = 0;
        hdr.seg.flow = hdr.dma.flow;
        hdr.seg.context = hdr.dma.context;
        hdr.seg.sum = hdr.dma.sum;
        hdr.seg.ack = hdr.seg.seq;
        hdr.seg.amount = hdr.dma.edge;
        hdr.dma.setInvalid();
        ig_tm_md.ucast_egress_port = hdr.seg.port;
    }

    action sync() {
        hdr.seg.kind = KIND_SYNC;
        hdr.seg.flags = TCP_ACK;
        hdr.seg.notes = 0;
        hdr.seg.flow = hdr.dma.flow;
        hdr.seg.context = hdr.dma.context;
        hdr.seg.amount = hdr.dma.position;
        hdr.seg.seq = hdr.dma.edge;
        hdr.dma.setInvalid();
        ig_tm_md.ucast_egress_port = hdr.seg.port;
    }

    action grant_timer() {
        hdr.seg.kind = KIND_GRANT;
        hdr.seg.notes = 0;
        hdr.seg.flow = hdr.timer.packet_id;
        hdr.timer.setInvalid();
        ig_tm_md.ucast_egress_port = PORT_HOST;
    }

    action grant_control() {
        hdr.seg.kind = KIND_GRANT;
        hdr.seg.notes = hdr.dma.flags;
        hdr.seg.flow = hdr.dma.flow;
        hdr.seg.context = hdr.dma.context;
        hdr.seg.grant = hdr.dma.position;
        hdr.seg.amount = hdr.dma.edge;
        hdr.dma.setInvalid();
        ig_tm_md.ucast_egress_port = PORT_HOST;
    }

    // Segments with SYN, FIN, RST or URG, without ACK, with other options, or with lengths that contradict each other
    // go to the control plane. Options that are taken must be there if and only if the header is 32 bytes long.
    table classify {
        key = {
            hdr.tcp.isValid(): ternary;
            hdr.dma.isValid(): ternary;
            hdr.timer.isValid(): ternary;
            hdr.options.isValid(): ternary;
            hdr.ipv6.isValid(): ternary;
            meta.known: ternary;
            meta.checksum_bad: ternary;
            hdr.tcp.data_offset: ternary;
            hdr.tcp.flags: ternary;
            meta.ecn: ternary;
            meta.ip_len: ternary;
            hdr.dma.op: ternary;
            ig_intr_md.ingress_port: ternary;
        }
        actions = { rx; tx; sync; grant_timer; grant_control; drop; foreign; }
        const entries = {
            // tcp  dma    timer  option v6 known bad offset flags      ecn length          op         port
            (true, false, false, _, _, _, true, _, _, _, _, _, _): drop();
            (true, false, false, _, false, 1, false, _, _, _, 0 &&& 0xffe0, _, _): drop();
            (true, false, false, _, false, 1, false, _, _, _, 32 &&& 0xfff8, _, _): drop();
            (true, false, false, true, false, 1, false, 8, _, _, 40 &&& 0xfff8, _, _): drop();
            (true, false, false, true, false, 1, false, 8, _, _, 48 &&& 0xfffc, _, _): drop();
            (true, false, false, _, true, 1, false, _, _, _, 0 &&& 0xfff0, _, _): drop();
            (true, false, false, _, true, 1, false, _, _, _, 16 &&& 0xfffc, _, _): drop();
            (true, false, false, true, true, 1, false, 8, _, _, 16 &&& 0xfff0, _, _): drop();
            (true, false, false, false, _, 1, false, 5, 0x10 &&& 0x37, 3, _, _, _): rx(TCP_ACK | TCP_ECE);
            (true, false, false, true, _, 1, false, 8, 0x10 &&& 0x37, 3, _, _, _): rx(TCP_ACK | TCP_ECE);
            (true, false, false, false, _, 1, false, 5, 0x10 &&& 0x37, _, _, _, _): rx(TCP_ACK);
            (true, false, false, true, _, 1, false, 8, 0x10 &&& 0x37, _, _, _, _): rx(TCP_ACK);
            (false, true, false, _, _, 1, _, _, _, _, _, DMA_TX, PORT_HOST): tx();
            (false, true, false, _, _, 1, _, _, _, _, _, DMA_SYNC, PORT_HOST): sync();
            (false, true, false, _, _, _, _, _, _, _, _, DMA_GRANT, PORT_CONTROL): grant_control();
            (false, true, false, _, _, _, _, _, _, _, _, _, _): drop();
            (false, false, true, _, _, 1, _, _, _, _, _, _, _): grant_timer();
            (false, false, true, _, _, 0, _, _, _, _, _, _, _): drop();
        }
        const default_action = foreign();
    }

#ifdef TIMELY
    // For egress: the peer's clock.
    action stamps() {
        hdr.seg.amount = hdr.options.first;
    }

    // A segment without a timestamp, though all have one: for the exception path (RFC 7323 section 3.2).
    action unstamped() {
        meta.known = 0;
    }
#endif

    // ---- lengths and sums: each line is one operation, so they take a stage after the other ----

    action rx_length() {
        hdr.seg.setValid();
        hdr.seg.length = hdr.ipv4.total_len - meta.header_len;
        meta.window = (bit<32>)hdr.tcp.window;
    }

    action rx_length_v6() {
        hdr.seg.setValid();
        hdr.seg.length = hdr.ipv6.payload_len - 20;
        meta.window = (bit<32>)hdr.tcp.window;
    }

    action rx_length_v6_options() {
        hdr.seg.setValid();
        hdr.seg.length = hdr.ipv6.payload_len - 32;
        meta.window = (bit<32>)hdr.tcp.window;
    }

    action tx_length() {
        hdr.seg.setValid();
        hdr.seg.length = hdr.dma.length;
        hdr.seg.flags = hdr.dma.flags & TCP_FROM_HOST;
    }

    action no_length() {
        hdr.seg.setValid();
        hdr.seg.length = 0;
    }

    action widen() {
        meta.length = (bit<32>)hdr.seg.length;
        meta.offset = meta.offset & meta.mask;
    }

    // FIN takes a sequence number.
    action count_fin() {
        meta.length = meta.length + 1;
    }

    table fin {
        key = {
            hdr.seg.kind: exact;
            hdr.seg.flags: ternary;
        }
        actions = { count_fin; NoAction; }
        const entries = {
            (KIND_TX, TCP_FIN &&& TCP_FIN): count_fin();
        }
        const default_action = NoAction();
    }

    action scale_0() { }
    action scale_1() { meta.window = meta.window << 1; }
    action scale_2() { meta.window = meta.window << 2; }
    action scale_3() { meta.window = meta.window << 3; }
    action scale_4() { meta.window = meta.window << 4; }
    action scale_5() { meta.window = meta.window << 5; }
    action scale_6() { meta.window = meta.window << 6; }
    action scale_7() { meta.window = meta.window << 7; }
    action scale_8() { meta.window = meta.window << 8; }
    action scale_9() { meta.window = meta.window << 9; }
    action scale_10() { meta.window = meta.window << 10; }
    action scale_11() { meta.window = meta.window << 11; }
    action scale_12() { meta.window = meta.window << 12; }
    action scale_13() { meta.window = meta.window << 13; }
    action scale_14() { meta.window = meta.window << 14; }

    // There is no shift by a variable: the peer's scale (RFC 7323) chooses among shifts by constants.
    table peer_scale {
        key = { meta.scale: exact; }
        actions = {
            scale_0; scale_1; scale_2; scale_3; scale_4; scale_5; scale_6; scale_7; scale_8; scale_9; scale_10;
            scale_11; scale_12; scale_13; scale_14;
        }
        const entries = {
            1: scale_1(); 2: scale_2(); 3: scale_3(); 4: scale_4(); 5: scale_5(); 6: scale_6(); 7: scale_7();
            8: scale_8(); 9: scale_9(); 10: scale_10(); 11: scale_11(); 12: scale_12(); 13: scale_13();
            14: scale_14();
        }
        const default_action = scale_0();
    }

    action sum() {
        hdr.seg.seq_end = hdr.seg.seq + meta.length;
        hdr.seg.address = meta.base + meta.offset;
    }

    action rx_edge() {
        hdr.seg.ack_edge = hdr.seg.ack + meta.window;
    }

    // Egress reads two words of each segment for `rx_advertised`: of what is sent, one is the number that the host expects.
    action tx_edge() {
        hdr.seg.ack_edge = hdr.seg.seq_end;
        hdr.seg.seq = hdr.seg.amount;
    }

    action sync_edge() {
        hdr.seg.seq_end = hdr.seg.amount;
    }

    // ---- frames that are not Laminar's (thesis 5.2 step 5) ----

    action forward(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        ig_tm_md.bypass_egress = 1;
    }

    table l2 {
        key = { hdr.ethernet.dst_addr: exact; }
        actions = { forward; to_cpu; }
        default_action = to_cpu();
        size = 4096;
    }

    // Frames of the control plane: to where the address is, or by the default that it sets.
    table from_cpu {
        key = { hdr.ethernet.dst_addr: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 4096;
    }

    apply {
        if (hdr.tcp.isValid()) {
            if (hdr.ipv6.isValid()) {
                if (hdr.options.isValid()) {
                    rx_length_v6_options();
                } else {
                    rx_length_v6();
                }
                flows_v6.apply();
            } else {
                rx_length();
                flows.apply();
            }
#ifdef TIMELY
            if (hdr.seg.stamped == 1) {
                if (hdr.options.isValid() && hdr.options.kinds == 0x0101080a) {
                    stamps();
                } else {
                    unstamped();
                }
            }
#endif
        } else if (hdr.dma.isValid()) {
            tx_length();
            contexts.apply();
        } else if (hdr.timer.isValid()) {
            no_length();
            grants.apply();
        }
        classify.apply();
        if (hdr.seg.isValid()) {
            widen();
            peer_scale.apply();
            fin.apply();
            sum();
            if (hdr.seg.kind == KIND_RX) {
                rx_edge();
            } else if (hdr.seg.kind == KIND_SYNC) {
                sync_edge();
            } else {
                tx_edge();
            }
        } else if (ig_intr_md.ingress_port == PORT_CPU) {
            from_cpu.apply();
        } else if (hdr.ethernet.isValid()) {
            l2.apply();
        }
    }
}

control LaminarIngressDeparser(
    packet_out pkt,
    inout ingress_headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md)
{
    apply {
        pkt.emit(hdr.seg);
        pkt.emit(hdr.ethernet);
        pkt.emit(hdr.ipv4);
        pkt.emit(hdr.ipv6);
        pkt.emit(hdr.tcp);
        pkt.emit(hdr.options);
    }
}
