// Received acknowledgements (Linux: tcp_ack), the peer's window, credits, retransmission (thesis 5.3.2, figures 5.5, 5.6).

// What a segment means for the transmit direction.
const bit<8> TX_NONE = 0;
const bit<8> TX_ACKED = 1;     // new bytes are acknowledged
const bit<8> TX_DUP_ACK = 2;
const bit<8> TX_BAD_ACK = 3;   // beyond what was sent
const bit<8> TX_SEND = 4;      // an outgoing segment within the window
const bit<8> TX_DROP = 5;      // one that is not: stale, or beyond the peer's window
const bit<8> TX_WINDOW = 6;    // nothing new but the peer's window

// The oldest byte not acknowledged, and the highest ever sent.
struct tx_window_t {
    bit<32> una;
    bit<32> max;
}

// Ahead of reassembly, which needs whether the acknowledgement can be one of this connection's (RFC 5961 section 5.2).
control TransmitWindow(inout egress_headers_t hdr, inout egress_metadata_t meta) {
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

    // The acknowledgement of a segment that lies outside the window may be another connection's.
    table tx_window_of {
        key = {
            hdr.seg.kind: ternary;
            meta.place: ternary;
#ifdef TIMELY
            hdr.seg.stamped: ternary;
            hdr.timestamps.echo: ternary;
#endif
        }
        actions = { do_tx_ack; do_tx_send; do_tx_read; NoAction; }
        const entries = {
#ifdef TIMELY
            (KIND_RX, _, 1, 0x80000000 &&& 0x80000000): do_tx_read();
            (KIND_RX, RX_WITHIN, _, _): do_tx_ack();
            (KIND_TX, _, _, _): do_tx_send();
            (_, _, _, _): do_tx_read();
#else
            (KIND_RX, RX_WITHIN): do_tx_ack();
            (KIND_TX, _): do_tx_send();
            (_, _): do_tx_read();
#endif
        }
        const default_action = NoAction();
    }

#ifdef TIMELY
    // The host answers, within its limit; it has the time when the last timestamp came (RFC 7323 section 5.5). Behind
    // `tx_window_of`, so that both take one stage.
    action old() {
        hdr.seg.kind = KIND_OLD;
    }

    table old_segments {
        key = {
            hdr.seg.kind: ternary;
            hdr.seg.stamped: ternary;
            hdr.timestamps.echo: ternary;
        }
        actions = { old; NoAction; }
        const entries = {
            (KIND_RX, 1, 0x80000000 &&& 0x80000000): old();
        }
        const default_action = NoAction();
    }
#endif

    // The largest window that the peer advertised (MAX.SND.WND): the host writes it where it grows.
    Register<bit<32>, bit<16>>(FLOWS, 0) tx_largest;

    RegisterAction<bit<32>, bit<16>, bit<32>>(tx_largest) largest_from = {
        void apply(inout bit<32> largest, out bit<32> reach) { reach = largest + hdr.seg.ack; }
    };

    action reach() { meta.behind = largest_from.execute(hdr.seg.flow); }

    action measure() {
        meta.acked = hdr.seg.ack - meta.snd_una;
        meta.unacked = meta.snd_max - hdr.seg.ack;
        meta.behind = meta.behind - meta.snd_una;
    }

    // As if it were an old acknowledgement: these count for nothing.
    action measure_outside() {
        meta.acked = 0x80000000;
        meta.unacked = meta.snd_max - hdr.seg.ack;
        meta.behind = meta.behind - meta.snd_una;
    }

    table differences {
        key = { meta.place: exact; }
        actions = { measure; measure_outside; }
        const entries = {
            RX_BELOW: measure_outside();
            RX_BEYOND: measure_outside();
            RX_BOTH: measure_outside();
        }
        const default_action = measure();
    }

    // The window of an old acknowledgement, or of one of bytes that were never sent, is of another time or of another
    // connection (RFC 9293 section 3.10.7.4: SND.UNA =< SEG.ACK =< SND.NXT).
    action forget_edge() { hdr.seg.ack_edge = meta.snd_una; }

    table usable_edge {
        key = {
            hdr.seg.kind: ternary;
            meta.acked: ternary;
            meta.unacked: ternary;
        }
        actions = { forget_edge; NoAction; }
        const entries = {
#ifdef TIMELY
            (KIND_OLD, _, _): forget_edge();
#endif
            (KIND_RX, 0x80000000 &&& 0x80000000, _): forget_edge();
            (KIND_RX, _, 0x80000000 &&& 0x80000000): forget_edge();
        }
        const default_action = NoAction();
    }

    apply {
        tx_window_of.apply();
#ifdef TIMELY
        old_segments.apply();
#endif
        reach();
        differences.apply();
        usable_edge.apply();
    }
}

control Transmission(inout egress_headers_t hdr, inout egress_metadata_t meta) {
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
        actions = { do_edge_ack; do_edge_read; NoAction; }
        const entries = {
            KIND_RX: do_edge_ack();
            KIND_TX: do_edge_read();
            KIND_SYNC: do_edge_read();
            KIND_GRANT: do_edge_read();
            KIND_ACK: do_edge_read();
            KIND_MERGE: do_edge_read();
#ifdef TIMELY
            KIND_OLD: do_edge_read();
#endif
        }
        const default_action = NoAction();
    }

    // ---- differences ----

    action measure() {
        meta.edge_moved = hdr.seg.ack_edge - meta.snd_edge;
        meta.length = (bit<32>)hdr.seg.length;
    }

    // ---- the verdict ----

    action decide(bit<8> verdict, bit<8> notes) {
        meta.tx = verdict;
        meta.una = meta.snd_una;
        meta.notes = hdr.seg.notes | notes;
    }

    action acked() {
        meta.tx = TX_ACKED;
        meta.una = hdr.seg.ack;
        meta.notes = hdr.seg.notes;
    }

    table verdict {
        key = {
            hdr.seg.kind: ternary;
            hdr.seg.length: ternary;
            meta.acked: ternary;
            meta.unacked: ternary;
            meta.edge_moved: ternary;
        }
        actions = { decide; acked; }
        const entries = {
            // An old acknowledgement counts for nothing.
            (KIND_RX, _, 0x80000000 &&& 0x80000000, _, _): decide(TX_NONE, 0);
            // A duplicate (RFC 5681 section 2): no payload, the same window, and something outstanding.
            (KIND_RX, _, 0, 0, 0): decide(TX_NONE, 0);
            (KIND_RX, 0, 0, _, 0): decide(TX_DUP_ACK, 0);
            // The edge a little further left is the same window: its scale (at most 14) rounds it.
            (KIND_RX, _, 0, 0, 0x80000000 &&& 0x80000000): decide(TX_NONE, 0);
            (KIND_RX, 0, 0, _, 0xffffc000 &&& 0xffffc000): decide(TX_DUP_ACK, 0);
            (KIND_RX, _, 0, _, 0): decide(TX_NONE, 0);
            // The same byte again, with an older or a newer window.
            (KIND_RX, _, 0, _, 0x80000000 &&& 0x80000000): decide(TX_NONE, 0);
            (KIND_RX, _, 0, _, _): decide(TX_WINDOW, 0);
            (KIND_RX, _, _, 0x80000000 &&& 0x80000000, _): decide(TX_BAD_ACK, DMA_BAD_ACK);
            (KIND_RX, _, _, _, _): acked();
            // Outgoing: stale retransmissions, and what the peer's window does not hold.
            (KIND_TX, _, 0x80000000 &&& 0x80000000, _, _): decide(TX_DROP, 0);
            (KIND_TX, _, _, _, 0): decide(TX_SEND, 0);
            (KIND_TX, _, _, _, 0x80000000 &&& 0x80000000): decide(TX_SEND, 0);
            (KIND_TX, _, _, _, _): decide(TX_DROP, 0);
        }
        const default_action = decide(TX_NONE, 0);
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
#ifdef NOTIFY_ACKS
    // Limited transmit (RFC 3042) is the host's: it has the congestion window.
    action tell_duplicate() { meta.notes = meta.notes | DMA_DUP_ACK; }
#endif

    table credits {
        key = {
            hdr.seg.kind: exact;
            meta.tx: exact;
            meta.dup_acks: exact;
        }
        actions = {
            do_spend; do_grant; do_halve; NoAction;
#ifdef NOTIFY_ACKS
            tell_duplicate;
#endif
        }
        const entries = {
            (KIND_TX, TX_SEND, 0): do_spend();
            (KIND_GRANT, TX_NONE, 0): do_grant();
#ifdef NOTIFY_ACKS
            (KIND_RX, TX_DUP_ACK, 1): tell_duplicate();
            (KIND_RX, TX_DUP_ACK, 2): tell_duplicate();
#endif
            (KIND_RX, TX_DUP_ACK, 3): do_halve();
        }
        const default_action = NoAction();
    }

    apply {
        tx_edge_of.apply();
        measure();
        verdict.apply();
        duplicates.apply();
        congestion.apply();
        credits.apply();
    }
}
