// Egress: the transport logic and all state that changes (thesis 5.3, figures 5.4 to 5.6). Each register is touched
// once in a pass. Traffic manager and port never drop behind it, so what it decided happens.

struct egress_headers_t {
    seg_h seg;
    dma_h dma;
    ethernet_h ethernet;
    ipv4_h ipv4;
    tcp_h tcp;
}

// What became of a segment in the receive direction.
const bit<8> RX_NONE = 0;      // no payload, nothing to say
const bit<8> RX_IN_ORDER = 1;
const bit<8> RX_OUT_OF_ORDER = 2;
const bit<8> RX_DUPLICATE = 3; // also: outside the window; answered by an acknowledgement
const bit<8> RX_SEND = 4;      // a pseudo segment that only acknowledges

// And of what it says in the transmit direction.
const bit<8> TX_NONE = 0;
const bit<8> TX_ACKED = 1;     // new bytes are acknowledged
const bit<8> TX_DUP_ACK = 2;
const bit<8> TX_BAD_ACK = 3;   // beyond what was sent
const bit<8> TX_SEND = 4;      // an outgoing segment within the window
const bit<8> TX_DROP = 5;      // one that is not: stale, or beyond the peer's window

struct egress_metadata_t {
    // Registers as they were before this segment.
    bit<32> rx_next;
    bit<32> rx_edge;
    bit<32> snd_una;
    bit<32> snd_max;
    bit<32> snd_edge;
    // Serial-number differences (RFC 9293 3.4): the sign bit decides.
    bit<32> from_next;     // seq - rx_next: 0 or negative begins in order
    bit<32> end_from_next; // seq_end - rx_next: positive brings new bytes
    bit<32> room;          // rx_edge - seq_end: negative exceeds the window
    bit<32> acked;         // ack - snd_una
    bit<32> unacked;       // snd_max - ack
    bit<32> edge_moved;    // ack_edge - snd_edge
    bit<8> rx;
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
    bit<32> window;
    bit<16> tcp_len;
    bit<16> payload_sum;
    bit<8> notes;
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
        meta.rx = RX_NONE;
        meta.tx = TX_NONE;
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
        meta.session = SESSION_ACK;
        transition accept;
    }
}

// Reassembly: the next byte expected and the right edge of the receive window, both as sequence numbers.
struct rx_window_t {
    bit<32> next;
    bit<32> edge;
}

// The oldest byte not acknowledged, and the highest ever sent.
struct tx_window_t {
    bit<32> una;
    bit<32> max;
}

// The one out-of-order interval, as offsets from rx_next; empty where the tail is 0.
struct interval_t {
    bit<32> head;
    bit<32> tail;
}

control LaminarEgress(
    inout egress_headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md)
{
    // ---- rx_next and rx_avail (figure 5.4 steps 1 and 2) ----
    //
    // The thesis keeps rx_avail, decrements it after rx_next has moved, and repairs an overrun from the control plane.
    // Here both ends of the window are one register pair, and one operation moves rx_next only within it:
    // rx_avail = edge - next at any time, and an overrun changes nothing.

    Register<rx_window_t, bit<16>>(FLOWS, {0, 0}) rx_window;

    RegisterAction2<rx_window_t, bit<16>, bit<32>, bit<32>>(rx_window) rx_window_segment = {
        void apply(inout rx_window_t w, out bit<32> next, out bit<32> edge) {
            next = w.next;
            edge = w.edge;
            if ((int<32>)(hdr.seg.seq - w.next) <= 0 && (int<32>)(hdr.seg.seq_end - w.next) > 0
                    && (int<32>)(hdr.seg.seq_end - w.edge) <= 0) {
                w.next = hdr.seg.seq_end;
            }
        }
    };

    RegisterAction2<rx_window_t, bit<16>, bit<32>, bit<32>>(rx_window) rx_window_extend = {
        void apply(inout rx_window_t w, out bit<32> next, out bit<32> edge) {
            w.edge = w.edge + hdr.seg.amount;
            next = w.next;
            edge = w.edge;
        }
    };

    RegisterAction2<rx_window_t, bit<16>, bit<32>, bit<32>>(rx_window) rx_window_read = {
        void apply(inout rx_window_t w, out bit<32> next, out bit<32> edge) {
            next = w.next;
            edge = w.edge;
        }
    };

    action do_rx_segment() { meta.rx_next = rx_window_segment.execute(hdr.seg.flow, meta.rx_edge); }
    action do_rx_extend() { meta.rx_next = rx_window_extend.execute(hdr.seg.flow, meta.rx_edge); }
    action do_rx_read() { meta.rx_next = rx_window_read.execute(hdr.seg.flow, meta.rx_edge); }

    table rx_window_of {
        key = { hdr.seg.kind: exact; }
        actions = { do_rx_segment; do_rx_extend; do_rx_read; }
        const entries = {
            KIND_RX: do_rx_segment();
            KIND_ACK: do_rx_read();
            KIND_MERGE: do_rx_segment();
            KIND_SYNC: do_rx_extend();
        }
        const default_action = do_rx_read();
    }

    // ---- tx_next_ack and what was sent (figures 5.5 and 5.6) ----

    Register<tx_window_t, bit<16>>(FLOWS, {0, 0}) tx_window;

    RegisterAction2<tx_window_t, bit<16>, bit<32>, bit<32>>(tx_window) tx_window_ack = {
        void apply(inout tx_window_t w, out bit<32> una, out bit<32> max_sent) {
            una = w.una;
            max_sent = w.max;
            if ((int<32>)(hdr.seg.ack - w.una) > 0 && (int<32>)(hdr.seg.ack - w.max) <= 0) {
                w.una = hdr.seg.ack;
            }
        }
    };

    // The segment may yet be dropped for want of credits: `max` is what may have been sent.
    RegisterAction2<tx_window_t, bit<16>, bit<32>, bit<32>>(tx_window) tx_window_send = {
        void apply(inout tx_window_t w, out bit<32> una, out bit<32> max_sent) {
            una = w.una;
            max_sent = w.max;
            if ((int<32>)(hdr.seg.seq_end - w.max) > 0) {
                w.max = hdr.seg.seq_end;
            }
        }
    };

    RegisterAction2<tx_window_t, bit<16>, bit<32>, bit<32>>(tx_window) tx_window_read = {
        void apply(inout tx_window_t w, out bit<32> una, out bit<32> max_sent) {
            una = w.una;
            max_sent = w.max;
        }
    };

    action do_tx_ack() { meta.snd_una = tx_window_ack.execute(hdr.seg.flow, meta.snd_max); }
    action do_tx_send() { meta.snd_una = tx_window_send.execute(hdr.seg.flow, meta.snd_max); }
    action do_tx_read() { meta.snd_una = tx_window_read.execute(hdr.seg.flow, meta.snd_max); }

    table tx_window_of {
        key = { hdr.seg.kind: exact; }
        actions = { do_tx_ack; do_tx_send; do_tx_read; }
        const entries = {
            KIND_RX: do_tx_ack();
            KIND_TX: do_tx_send();
        }
        const default_action = do_tx_read();
    }

    // ---- tx_remote_avail (figure 5.6 step 5), as the right edge: it never moves back, so a delayed
    // acknowledgement can't shrink it, and there is no need to wait for the reassembly's verdict ----

    Register<bit<32>, bit<16>>(FLOWS, 0) tx_edge;

    RegisterAction<bit<32>, bit<16>, bit<32>>(tx_edge) tx_edge_ack = {
        void apply(inout bit<32> edge, out bit<32> before) {
            before = edge;
            if ((int<32>)(hdr.seg.ack_edge - edge) > 0) {
                edge = hdr.seg.ack_edge;
            }
        }
    };

    RegisterAction<bit<32>, bit<16>, bit<32>>(tx_edge) tx_edge_read = {
        void apply(inout bit<32> edge, out bit<32> before) {
            before = edge;
        }
    };

    action do_edge_ack() { meta.snd_edge = tx_edge_ack.execute(hdr.seg.flow); }
    action do_edge_read() { meta.snd_edge = tx_edge_read.execute(hdr.seg.flow); }

    table tx_edge_of {
        key = { hdr.seg.kind: exact; }
        actions = { do_edge_ack; do_edge_read; }
        const entries = {
            KIND_RX: do_edge_ack();
        }
        const default_action = do_edge_read();
    }

    // ---- differences, and the fields that the kind alone decides ----

    action measure() {
        meta.from_next = hdr.seg.seq - meta.rx_next;
        meta.end_from_next = hdr.seg.seq_end - meta.rx_next;
        meta.room = meta.rx_edge - hdr.seg.seq_end;
        meta.acked = hdr.seg.ack - meta.snd_una;
        meta.unacked = meta.snd_max - hdr.seg.ack;
        meta.edge_moved = hdr.seg.ack_edge - meta.snd_edge;
        meta.length = (bit<32>)hdr.seg.length;
        hdr.tcp.seq_no = meta.snd_max;
        hdr.tcp.ack_no = hdr.seg.seq_end;
        hdr.ipv4.total_len = 40;
        hdr.ipv4.ecn = 0;
        meta.tcp_len = 20;
    }

    action measure_tx() {
        meta.room = meta.rx_edge - meta.rx_next;
        meta.acked = hdr.seg.ack - meta.snd_una;
        meta.unacked = meta.snd_max - hdr.seg.ack;
        meta.edge_moved = hdr.seg.ack_edge - meta.snd_edge;
        meta.length = (bit<32>)hdr.seg.length;
        hdr.tcp.seq_no = hdr.seg.seq;
        hdr.tcp.ack_no = meta.rx_next;
        hdr.ipv4.total_len = hdr.seg.length + 40;
        hdr.ipv4.ecn = (bit<2>)hdr.seg.marks;
        meta.tcp_len = hdr.seg.length + 20;
        meta.payload_sum = hdr.seg.sum;
    }

    action measure_sync() {
        meta.room = meta.rx_edge - meta.rx_next;
        hdr.tcp.seq_no = meta.snd_max;
        hdr.tcp.ack_no = meta.rx_next;
        hdr.ipv4.total_len = 40;
        hdr.ipv4.ecn = 0;
        meta.tcp_len = 20;
    }

    table differences {
        key = { hdr.seg.kind: exact; }
        actions = { measure; measure_tx; measure_sync; }
        const entries = {
            KIND_RX: measure();
            KIND_ACK: measure();
            KIND_MERGE: measure();
            KIND_TX: measure_tx();
        }
        const default_action = measure_sync();
    }

    // ---- verdicts: a gateway can't compare 32 bits, a ternary table can look at a sign ----

    action rx_verdict(bit<8> verdict) {
        meta.rx = verdict;
    }

    table reassembly {
        key = {
            hdr.seg.kind: ternary;
            hdr.seg.length: ternary;
            meta.from_next: ternary;
            meta.end_from_next: ternary;
            meta.room: ternary;
        }
        actions = { rx_verdict; }
        const entries = {
            // No payload: only what lies outside is answered (keepalives, zero-window probes).
            (KIND_RX, 0, 0x80000000 &&& 0x80000000, _, _): rx_verdict(RX_DUPLICATE);
            (KIND_RX, 0, _, _, 0x80000000 &&& 0x80000000): rx_verdict(RX_DUPLICATE);
            (KIND_RX, 0, _, _, _): rx_verdict(RX_NONE);
            // Nothing new, or more than the window holds.
            (KIND_RX, _, _, 0, _): rx_verdict(RX_DUPLICATE);
            (KIND_RX, _, _, 0x80000000 &&& 0x80000000, _): rx_verdict(RX_DUPLICATE);
            (KIND_RX, _, _, _, 0x80000000 &&& 0x80000000): rx_verdict(RX_DUPLICATE);
            (KIND_RX, _, 0, _, _): rx_verdict(RX_IN_ORDER);
            (KIND_RX, _, 0x80000000 &&& 0x80000000, _, _): rx_verdict(RX_IN_ORDER);
            (KIND_RX, _, _, _, _): rx_verdict(RX_OUT_OF_ORDER);
            (KIND_ACK, _, _, _, _): rx_verdict(RX_SEND);
            // A merge that came too late is discarded: its bytes are acknowledged by another.
            (KIND_MERGE, _, _, 0, _): rx_verdict(RX_NONE);
            (KIND_MERGE, _, _, 0x80000000 &&& 0x80000000, _): rx_verdict(RX_NONE);
            (KIND_MERGE, _, _, _, 0x80000000 &&& 0x80000000): rx_verdict(RX_NONE);
            (KIND_MERGE, _, 0, _, _): rx_verdict(RX_IN_ORDER);
            (KIND_MERGE, _, 0x80000000 &&& 0x80000000, _, _): rx_verdict(RX_IN_ORDER);
        }
        const default_action = rx_verdict(RX_NONE);
    }

    action tx_verdict(bit<8> verdict, bit<8> notes) {
        meta.tx = verdict;
        meta.una = meta.snd_una;
        meta.notes = hdr.seg.notes | notes;
    }

    action tx_acked() {
        meta.tx = TX_ACKED;
        meta.una = hdr.seg.ack;
        meta.notes = hdr.seg.notes;
    }

    table transmission {
        key = {
            hdr.seg.kind: ternary;
            hdr.seg.length: ternary;
            meta.acked: ternary;
            meta.unacked: ternary;
            meta.edge_moved: ternary;
        }
        actions = { tx_verdict; tx_acked; }
        const entries = {
            // An old acknowledgement says nothing.
            (KIND_RX, _, 0x80000000 &&& 0x80000000, _, _): tx_verdict(TX_NONE, 0);
            // A duplicate (RFC 5681 section 2): no payload, the same window, and something outstanding.
            (KIND_RX, _, 0, 0, _): tx_verdict(TX_NONE, 0);
            (KIND_RX, 0, 0, 0 &&& 0x80000000, 0): tx_verdict(TX_DUP_ACK, 0);
            (KIND_RX, _, 0, 0 &&& 0x80000000, _): tx_verdict(TX_NONE, 0);
            (KIND_RX, _, _, 0x80000000 &&& 0x80000000, _): tx_verdict(TX_BAD_ACK, DMA_BAD_ACK);
            (KIND_RX, _, _, _, _): tx_acked();
            // Outgoing: stale retransmissions, and what the peer's window does not hold.
            (KIND_TX, _, 0x80000000 &&& 0x80000000, _, _): tx_verdict(TX_DROP, 0);
            (KIND_TX, _, _, _, 0): tx_verdict(TX_SEND, 0);
            (KIND_TX, _, _, _, 0x80000000 &&& 0x80000000): tx_verdict(TX_SEND, 0);
            (KIND_TX, _, _, _, _): tx_verdict(TX_DROP, 0);
        }
        const default_action = tx_verdict(TX_NONE, 0);
    }

    // ---- the out-of-order interval (figure 5.4 steps 3 and 4) ----

    Register<interval_t, bit<16>>(FLOWS, {0, 0}) rx_ooo;

    // rx_next moved: so do the offsets from it.
    RegisterAction4<interval_t, bit<16>, bit<32>, bit<32>, bit<32>, bit<32>>(rx_ooo) ooo_advance = {
        void apply(inout interval_t i, out bit<32> head_before, out bit<32> tail_before, out bit<32> head,
                   out bit<32> tail) {
            head_before = i.head;
            tail_before = i.tail;
            i.head = i.head |-| meta.end_from_next;
            i.tail = i.tail |-| meta.end_from_next;
            head = i.head;
            tail = i.tail;
        }
    };

    // Begin an interval, or extend it at either end by a segment that touches it.
    RegisterAction4<interval_t, bit<16>, bit<32>, bit<32>, bit<32>, bit<32>>(rx_ooo) ooo_insert = {
        void apply(inout interval_t i, out bit<32> head_before, out bit<32> tail_before, out bit<32> head,
                   out bit<32> tail) {
            head_before = i.head;
            tail_before = i.tail;
            if (i.tail == 0) {
                i.head = meta.from_next;
                i.tail = meta.end_from_next;
            } else if ((int<32>)(meta.from_next - i.tail) <= 0 && (int<32>)(meta.end_from_next - i.head) >= 0) {
                i.head = min(i.head, meta.from_next);
                i.tail = max(i.tail, meta.end_from_next);
            }
            head = i.head;
            tail = i.tail;
        }
    };

    action do_ooo_advance() {
        meta.head_before = ooo_advance.execute(hdr.seg.flow, meta.tail_before, meta.ooo_head, meta.ooo_tail);
    }
    action do_ooo_insert() {
        meta.head_before = ooo_insert.execute(hdr.seg.flow, meta.tail_before, meta.ooo_head, meta.ooo_tail);
    }

    table interval {
        key = { meta.rx: exact; }
        actions = { do_ooo_advance; do_ooo_insert; NoAction; }
        const entries = {
            RX_IN_ORDER: do_ooo_advance();
            RX_OUT_OF_ORDER: do_ooo_insert();
        }
        const default_action = NoAction();
    }

    // ---- trimming (figure 5.4 step 1). What the application may already have read must not be placed again: its room
    // may belong to bytes one buffer further on. That is everything before rx_next, and an interval whose gap is
    // closed, even while its merge is on its way, since the host heard of it ahead of the merge (5.3.1.6). ----

    action trim_front() {
        meta.skip = 0 - meta.from_next;
    }

    action trim_interval() {
        meta.skip = meta.tail_before - meta.from_next;
    }

    table trim {
        key = {
            meta.rx: ternary;
            meta.head_before: ternary;
            meta.tail_before: ternary;
        }
        actions = { trim_front; trim_interval; NoAction; }
        const entries = {
            (RX_IN_ORDER, 0, _): trim_interval();
            (RX_IN_ORDER, _, _): trim_front();
            (RX_OUT_OF_ORDER, 0, 0): NoAction();
            (RX_OUT_OF_ORDER, 0, _): trim_interval();
        }
        const default_action = NoAction();
    }

    // ---- tx_dupack_cnt (figure 5.6 step 2) ----

    Register<bit<8>, bit<16>>(FLOWS, 0) dup_ack_count;

    RegisterAction<bit<8>, bit<16>, bit<8>>(dup_ack_count) dup_ack_more = {
        void apply(inout bit<8> count, out bit<8> now) {
            count = count |+| 1;
            now = count;
        }
    };

    RegisterAction<bit<8>, bit<16>, bit<8>>(dup_ack_count) dup_ack_reset = {
        void apply(inout bit<8> count) {
            count = 0;
        }
    };

    action do_dup_ack() { meta.dup_acks = dup_ack_more.execute(hdr.seg.flow); }
    action do_dup_reset() { dup_ack_reset.execute(hdr.seg.flow); }

    table duplicates {
        key = { meta.tx: exact; }
        actions = { do_dup_ack; do_dup_reset; NoAction; }
        const entries = {
            TX_DUP_ACK: do_dup_ack();
            TX_ACKED: do_dup_reset();
        }
        const default_action = NoAction();
    }

    // ---- for congestion control in the control plane: bytes acknowledged under ECN echo (DCTCP, thesis 5.3.2.1).
    // Bytes acknowledged in total are the movement of tx_window.una. ----

    Register<bit<32>, bit<16>>(FLOWS, 0) ecn_bytes;

    RegisterAction<bit<32>, bit<16>, bit<32>>(ecn_bytes) ecn_bytes_add = {
        void apply(inout bit<32> bytes) {
            bytes = bytes + meta.acked;
        }
    };

    action do_ecn_bytes() { ecn_bytes_add.execute(hdr.seg.flow); }

    table congestion {
        key = {
            meta.tx: exact;
            hdr.seg.marks: exact;
        }
        actions = { do_ecn_bytes; NoAction; }
        const entries = {
            (TX_ACKED, TCP_ECE): do_ecn_bytes();
        }
        const default_action = NoAction();
    }

    // ---- tx_credits (figures 5.5 step 4 and 5.6 step 4) ----

    Register<bit<32>, bit<16>>(FLOWS, 0) tx_credits;
    MathUnit<bit<32>>(MathOp_t.MUL, 1, 2) half;

    RegisterAction<bit<32>, bit<16>, bit<32>>(tx_credits) credits_spend = {
        void apply(inout bit<32> credits, out bit<32> before) {
            before = credits;
            credits = credits |-| meta.length;
        }
    };

    // Not above what the control plane allows to pile up.
    RegisterAction<bit<32>, bit<16>, bit<32>>(tx_credits) credits_grant = {
        void apply(inout bit<32> credits, out bit<32> now) {
            if ((int<32>)(hdr.seg.amount - credits) > 0) {
                credits = credits + hdr.seg.grant;
            }
            now = credits;
        }
    };

    RegisterAction<bit<32>, bit<16>, bit<32>>(tx_credits) credits_halve = {
        void apply(inout bit<32> credits, out bit<32> now) {
            credits = half.execute(credits);
            now = credits;
        }
    };

    action do_spend() { meta.credits = credits_spend.execute(hdr.seg.flow); }
    action do_grant() { meta.credits = credits_grant.execute(hdr.seg.flow); }
    action do_halve() {
        meta.credits = credits_halve.execute(hdr.seg.flow);
        meta.notes = meta.notes | DMA_FAST_RETRANSMIT;
    }

    table credits {
        key = {
            hdr.seg.kind: exact;
            meta.tx: exact;
            meta.dup_acks: exact;
        }
        actions = { do_spend; do_grant; do_halve; NoAction; }
        const entries = {
            (KIND_TX, TX_SEND, 0): do_spend();
            (KIND_GRANT, TX_NONE, 0): do_grant();
            (KIND_RX, TX_DUP_ACK, 3): do_halve();
        }
        const default_action = NoAction();
    }

    // ---- the pseudo segment (thesis 5.3.1.4, 5.3.1.5): an acknowledgement of what was in order; where the segment
    // closed the gap, it covers the interval, too, and merges it on its way ----

    action acknowledge() {
        meta.pseudo_kind = KIND_ACK;
        meta.pseudo_seq = hdr.seg.seq_end;
        meta.pseudo_end = hdr.seg.seq_end;
    }

    action acknowledge_and_merge() {
        meta.pseudo_kind = KIND_MERGE;
        meta.pseudo_seq = hdr.seg.seq_end;
        meta.pseudo_end = hdr.seg.seq_end + meta.ooo_tail;
    }

    action acknowledge_again() {
        meta.pseudo_kind = KIND_ACK;
        meta.pseudo_seq = meta.rx_next;
        meta.pseudo_end = meta.rx_next;
        meta.before_head = meta.from_next - meta.ooo_head;
        meta.behind_tail = meta.ooo_tail - meta.end_from_next;
    }

    // Out of order, while a merge is still on its way.
    action acknowledge_again_and_merge() {
        meta.pseudo_kind = KIND_MERGE;
        meta.pseudo_seq = meta.rx_next;
        meta.pseudo_end = meta.rx_next + meta.ooo_tail;
        meta.before_head = meta.from_next - meta.ooo_head;
        meta.behind_tail = meta.ooo_tail - meta.end_from_next;
    }

    table gap {
        key = {
            meta.rx: ternary;
            meta.ooo_head: ternary;
            meta.ooo_tail: ternary;
        }
        actions = { acknowledge; acknowledge_and_merge; acknowledge_again; acknowledge_again_and_merge; }
        const entries = {
            (RX_IN_ORDER, _, 0): acknowledge();
            (RX_IN_ORDER, 0, _): acknowledge_and_merge();
            (RX_IN_ORDER, _, _): acknowledge();
            (RX_OUT_OF_ORDER, 0, _): acknowledge_again_and_merge();
        }
        const default_action = acknowledge_again();
    }

    // ---- the window that is advertised ----

    action scale_window() {
        meta.window = meta.room >> RX_SCALE;
    }

    action fits() {
        hdr.tcp.window = (bit<16>)meta.window;
    }

    action full() {
        hdr.tcp.window = 0xffff;
    }

    table window {
        key = { meta.window: ternary; }
        actions = { fits; full; }
        const entries = {
            0 &&& 0xffff0000: fits();
        }
        const default_action = full();
    }

    // ---- where a flow's segments go: one copy of the addresses, for TX and for acknowledgements ----

    action addresses(bit<48> dst_mac, bit<48> src_mac, bit<32> src, bit<32> dst, bit<16> src_port, bit<16> dst_port) {
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

    table headers {
        key = { hdr.seg.flow: exact; }
        actions = { addresses; NoAction; }
        default_action = NoAction();
        size = FLOWS;
    }

    // ---- what leaves ----

    action transfer(bit<8> op) {
        hdr.dma.setValid();
        hdr.dma.op = op;
        hdr.dma.flags = meta.notes;
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
        transfer(DMA_RX);
        hdr.dma.length = hdr.seg.length;
        hdr.dma.skip = meta.skip;
        hdr.dma.position = meta.pseudo_end;
        hdr.dma.edge = hdr.seg.ack_edge;
        eg_dprsr_md.mirror_type = MIRROR_ACK;
        eg_dprsr_md.mirror_egress_port = hdr.seg.port;
    }

    // No payload to place, but something to say about the transmit direction.
    action notify() {
        transfer(DMA_RX);
        hdr.dma.length = 0;
        hdr.dma.skip = 0;
        hdr.dma.position = meta.rx_next;
        hdr.dma.edge = hdr.seg.ack_edge;
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
        transfer(DMA_GRANT);
        hdr.dma.length = 0;
        hdr.dma.skip = 0;
        hdr.dma.position = meta.rx_next;
        hdr.dma.edge = meta.snd_edge;
    }

    action send() {
        hdr.ethernet.setValid();
        hdr.ipv4.setValid();
        hdr.tcp.setValid();
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
        actions = { deliver; notify; notify_and_reply; reply; granted; send; discard; }
        const entries = {
            (KIND_RX, RX_IN_ORDER, _, _, _, _, _, _): deliver();
            // Out of order: taken in if the interval reaches around it; with a merge on its way, if it ends there.
            (KIND_RX, RX_OUT_OF_ORDER, _, KIND_MERGE, _, 0, _, _): deliver();
            (KIND_RX, RX_OUT_OF_ORDER, _, KIND_ACK, 0 &&& 0x80000000, 0 &&& 0x80000000, _, _): deliver();
            (KIND_RX, RX_OUT_OF_ORDER, TX_BAD_ACK, _, _, _, _, _): notify_and_reply();
            (KIND_RX, RX_OUT_OF_ORDER, _, _, _, _, _, _): reply();
            (KIND_RX, RX_DUPLICATE, TX_BAD_ACK, _, _, _, _, _): notify_and_reply();
            (KIND_RX, RX_DUPLICATE, TX_DUP_ACK, _, _, _, _, 3): notify_and_reply();
            (KIND_RX, RX_DUPLICATE, _, _, _, _, _, _): reply();
            (KIND_RX, _, TX_BAD_ACK, _, _, _, _, _): notify_and_reply();
            (KIND_RX, _, TX_DUP_ACK, _, _, _, _, 3): notify();
#ifdef NOTIFY_ACKS
            (KIND_RX, _, TX_ACKED, _, _, _, _, _): notify();
#endif
            (KIND_RX, _, _, _, _, _, _, _): discard();
            (KIND_TX, _, TX_SEND, _, _, _, 0, _): discard();
            (KIND_TX, _, TX_SEND, _, _, _, _, _): send();
            (KIND_TX, _, _, _, _, _, _, _): discard();
            (KIND_ACK, _, _, _, _, _, _, _): send();
            (KIND_MERGE, RX_IN_ORDER, _, _, _, _, _, _): send();
            (KIND_SYNC, _, _, _, _, _, _, _): send();
            (KIND_GRANT, _, _, _, _, _, _, _): granted();
        }
        const default_action = discard();
    }

    apply {
        rx_window_of.apply();
        tx_window_of.apply();
        tx_edge_of.apply();
        headers.apply();
        differences.apply();
        scale_window();
        reassembly.apply();
        transmission.apply();
        window.apply();
        interval.apply();
        trim.apply();
        duplicates.apply();
        congestion.apply();
        credits.apply();
        gap.apply();
        finish.apply();
    }
}

control LaminarEgressDeparser(
    packet_out pkt,
    inout egress_headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md)
{
    Checksum() ip_checksum;
    Checksum() tcp_checksum;
    Mirror() mirror;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.hdr_checksum = ip_checksum.update({
                hdr.ipv4.version_ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.identification,
                hdr.ipv4.flags_fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr });
        }
        if (hdr.tcp.isValid()) {
            // Tofino can't sum a payload (thesis 5.4); the DMA engine did when it read it.
            hdr.tcp.checksum = tcp_checksum.update({
                hdr.ipv4.src_addr, hdr.ipv4.dst_addr, 8w0, hdr.ipv4.protocol, meta.tcp_len, hdr.tcp.src_port,
                hdr.tcp.dst_port, hdr.tcp.seq_no, hdr.tcp.ack_no, hdr.tcp.data_offset, hdr.tcp.reserved,
                hdr.tcp.flags, hdr.tcp.window, hdr.tcp.urgent, meta.payload_sum });
        }
        if (eg_dprsr_md.mirror_type == MIRROR_ACK) {
            mirror.emit<seg_h>(meta.session, {
                meta.pseudo_kind, hdr.seg.flags, hdr.seg.marks, hdr.seg._pad, hdr.seg.port, hdr.seg.notes,
                hdr.seg.flow, hdr.seg.context, hdr.seg.length, hdr.seg.sum, meta.pseudo_seq, meta.pseudo_end,
                hdr.seg.ack, hdr.seg.ack_edge, hdr.seg.amount, hdr.seg.grant, hdr.seg.address });
        }
        pkt.emit(hdr.dma);
        pkt.emit(hdr.ethernet);
        pkt.emit(hdr.ipv4);
        pkt.emit(hdr.tcp);
    }
}
