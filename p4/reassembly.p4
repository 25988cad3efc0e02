// Reassembly (thesis 5.3.1, figure 5.4): from the segment to its verdict, the out-of-order interval and the pseudo
// segment that acknowledges.

// What became of a segment in the receive direction.
const bit<8> RX_NONE = 0;      // no payload, nothing to say
const bit<8> RX_IN_ORDER = 1;
const bit<8> RX_OUT_OF_ORDER = 2;
const bit<8> RX_DUPLICATE = 3; // also: outside the window; answered by an acknowledgement
const bit<8> RX_SEND = 4;      // a pseudo segment that only acknowledges
const bit<8> RX_CHALLENGE = 5; // answered by the host, within its limit

// Reassembly: the next byte expected and the right edge of the receive window, both as sequence numbers.
struct rx_window_t {
    bit<32> next;
    bit<32> edge;
}

// Where a segment lies, beside the advertised window: a stateful ALU gives all its comparisons as one bit of sixteen.
const bit<16> RX_WITHIN = 1;
const bit<16> RX_BELOW = 2;
const bit<16> RX_BEYOND = 4;
const bit<16> RX_BOTH = 8;

// What the peer has: the last number acknowledged, and the right edge of the advertised window.
struct rx_advertised_t {
    bit<32> acked;
    bit<32> edge;
}

// The one out-of-order interval, as offsets from rx_next; empty where the tail is 0.
struct interval_t {
    bit<32> head;
    bit<32> tail;
}

// Whether a segment is acceptable (RFC 9293 section 3.10.7.4), ahead of all state that its acknowledgement would move. The
// verdict of `rx_window` comes too late for that, since it needs to know in turn whether the acknowledgement can be. The
// edge is exact: nothing but the application's reading moves it. The other end is the last number acknowledged, not the
// next expected, which it never passes: as Linux does, and the rules of all engines (`check_sequence` of crates/tcp),
// because such a segment may be a good one that was overtaken, and its acknowledgement is worth having.
// Meets RFC 9293: 3.10.7.4-a.
control Acceptance(inout egress_headers_t hdr, inout egress_metadata_t meta) {
    Register<rx_advertised_t, bit<16>>(FLOWS, {0, 0}) rx_advertised;

    RegisterAction<rx_advertised_t, bit<16>, bit<16>>(rx_advertised) advertised_check = {
        void apply(inout rx_advertised_t t, out bit<16> place) {
            place = this.predicate<bit<16>>(
                (int<32>)(hdr.seg.seq_end - t.acked) < 0, (int<32>)(t.edge - hdr.seg.seq) < 0);
        }
    };

    // A pseudo segment acknowledges what it covers, the rest what the host had when it sent it.
    RegisterAction<rx_advertised_t, bit<16>, bit<32>>(rx_advertised) advertised_acknowledge = {
        void apply(inout rx_advertised_t t) {
            if ((int<32>)(hdr.seg.seq_end - t.acked) > 0) {
                t.acked = hdr.seg.seq_end;
            }
        }
    };

    RegisterAction<rx_advertised_t, bit<16>, bit<32>>(rx_advertised) advertised_send = {
        void apply(inout rx_advertised_t t) {
            if ((int<32>)(hdr.seg.seq - t.acked) > 0) {
                t.acked = hdr.seg.seq;
            }
        }
    };

    RegisterAction<rx_advertised_t, bit<16>, bit<32>>(rx_advertised) advertised_extend = {
        void apply(inout rx_advertised_t t) {
            if ((int<32>)(hdr.seg.seq - t.acked) > 0) {
                t.acked = hdr.seg.seq;
            }
            t.edge = t.edge + hdr.seg.seq_end;
        }
    };

    action do_check() { meta.place = advertised_check.execute(hdr.seg.flow); }
    action do_acknowledge() { advertised_acknowledge.execute(hdr.seg.flow); }
    action do_send() { advertised_send.execute(hdr.seg.flow); }
    action do_extend() { advertised_extend.execute(hdr.seg.flow); }

    table rx_advertised_of {
        key = { hdr.seg.kind: exact; }
        actions = { do_check; do_acknowledge; do_send; do_extend; NoAction; }
        const entries = {
            KIND_RX: do_check();
            KIND_ACK: do_acknowledge();
            KIND_MERGE: do_acknowledge();
            KIND_TX: do_send();
            KIND_SYNC: do_extend();
        }
        const default_action = NoAction();
    }

    apply {
        rx_advertised_of.apply();
    }
}

// Meets RFC 5681: 3.2-a, 3.2-b.
// Meets RFC 9293: SHLD-31.
// Meets RFC 5961: 5.2-a, 7-a.
control Reassembly(inout egress_headers_t hdr, inout egress_metadata_t meta) {
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

    // Payload is not taken from a segment that acknowledges what was never sent, or what is older than any window
    // (RFC 5961 section 5.2).
    table rx_window_of {
        key = {
            hdr.seg.kind: ternary;
            meta.behind: ternary;
            meta.unacked: ternary;
        }
        actions = { do_rx_segment; do_rx_extend; do_rx_read; NoAction; }
        const entries = {
            (KIND_RX, _, 0x80000000 &&& 0x80000000): do_rx_read();
            (KIND_RX, 0x80000000 &&& 0x80000000, _): do_rx_read();
            (KIND_RX, _, _): do_rx_segment();
            (KIND_MERGE, _, _): do_rx_segment();
            (KIND_SYNC, _, _): do_rx_extend();
            (_, _, _): do_rx_read();
        }
        const default_action = NoAction();
    }

    // ---- differences ----

    action measure() {
        meta.from_next = hdr.seg.seq - meta.rx_next;
        meta.end_from_next = hdr.seg.seq_end - meta.rx_next;
        meta.room = meta.rx_edge - hdr.seg.seq_end;
    }

    // Room behind rx_next: for what is sent without a segment having come.
    action measure_room() {
        meta.room = meta.rx_edge - meta.rx_next;
    }

    table differences {
        key = { hdr.seg.kind: exact; }
        actions = { measure; measure_room; }
        const entries = {
            KIND_RX: measure();
            KIND_ACK: measure();
            KIND_MERGE: measure();
        }
        const default_action = measure_room();
    }

    // ---- the verdict: a gateway can't compare 32 bits, a ternary table can look at a sign ----

    action decide(bit<8> verdict) {
        meta.rx = verdict;
    }

    table verdict {
        key = {
            hdr.seg.kind: ternary;
            hdr.seg.length: ternary;
            meta.from_next: ternary;
            meta.end_from_next: ternary;
            meta.room: ternary;
            meta.behind: ternary;
            meta.unacked: ternary;
        }
        actions = { decide; }
        const entries = {
            // An acknowledgement that cannot be one of this connection's.
            (KIND_RX, _, _, _, _, _, 0x80000000 &&& 0x80000000): decide(RX_CHALLENGE);
            (KIND_RX, _, _, _, _, 0x80000000 &&& 0x80000000, _): decide(RX_CHALLENGE);
            // No payload: only what lies outside is answered, at once where it is a probe (keepalives, zero-window probes).
            (KIND_RX, 0, 0xffffffff, _, _, _, _): decide(RX_DUPLICATE);
            (KIND_RX, 0, 0x80000000 &&& 0x80000000, _, _, _, _): decide(RX_CHALLENGE);
            (KIND_RX, 0, _, _, 0x80000000 &&& 0x80000000, _, _): decide(RX_CHALLENGE);
            (KIND_RX, 0, _, _, _, _, _): decide(RX_NONE);
            // Nothing new, or more than the window holds.
            (KIND_RX, _, _, 0, _, _, _): decide(RX_DUPLICATE);
            (KIND_RX, _, _, 0x80000000 &&& 0x80000000, _, _, _): decide(RX_DUPLICATE);
            (KIND_RX, _, _, _, 0x80000000 &&& 0x80000000, _, _): decide(RX_DUPLICATE);
            (KIND_RX, _, 0, _, _, _, _): decide(RX_IN_ORDER);
            (KIND_RX, _, 0x80000000 &&& 0x80000000, _, _, _, _): decide(RX_IN_ORDER);
            (KIND_RX, _, _, _, _, _, _): decide(RX_OUT_OF_ORDER);
            (KIND_ACK, _, _, _, _, _, _): decide(RX_SEND);
            // A merge that came too late is discarded: its bytes are acknowledged by another.
            (KIND_MERGE, _, _, 0, _, _, _): decide(RX_NONE);
            (KIND_MERGE, _, _, 0x80000000 &&& 0x80000000, _, _, _): decide(RX_NONE);
            (KIND_MERGE, _, _, _, 0x80000000 &&& 0x80000000, _, _): decide(RX_NONE);
            (KIND_MERGE, _, 0, _, _, _, _): decide(RX_IN_ORDER);
            (KIND_MERGE, _, 0x80000000 &&& 0x80000000, _, _, _, _): decide(RX_IN_ORDER);
        }
        const default_action = decide(RX_NONE);
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

#ifdef SACK
    // For the SACK block of a pseudo segment.
    RegisterAction2<interval_t, bit<16>, bit<32>, bit<32>>(rx_ooo) ooo_read = {
        void apply(inout interval_t i, out bit<32> head, out bit<32> tail) {
            head = i.head;
            tail = i.tail;
        }
    };

    action do_ooo_read() { meta.ooo_head = ooo_read.execute(hdr.seg.flow, meta.ooo_tail); }
#endif

    action do_ooo_advance() {
        meta.head_before = ooo_advance.execute(hdr.seg.flow, meta.tail_before, meta.ooo_head, meta.ooo_tail);
    }
    action do_ooo_insert() {
        meta.head_before = ooo_insert.execute(hdr.seg.flow, meta.tail_before, meta.ooo_head, meta.ooo_tail);
    }

    table interval {
        key = { meta.rx: exact; }
        actions = {
            do_ooo_advance; do_ooo_insert; NoAction;
#ifdef SACK
            do_ooo_read;
#endif
        }
        const entries = {
#ifdef SACK
            RX_SEND: do_ooo_read();
#endif
            RX_IN_ORDER: do_ooo_advance();
            RX_OUT_OF_ORDER: do_ooo_insert();
        }
        const default_action = NoAction();
    }

    // ---- trimming (figure 5.4 step 1). What the application may already have read must not be placed again: its room
    // may belong to bytes one buffer further on. That is everything before rx_next, and an interval whose gap is
    // closed, even while its merge is on its way, since the host had it ahead of the merge (5.3.1.6). ----

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

    apply {
        rx_window_of.apply();
        differences.apply();
        verdict.apply();
        interval.apply();
        trim.apply();
        gap.apply();
    }
}
