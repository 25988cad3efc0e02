// Extension: timestamps (RFC 7323) on all that is sent, and a round-trip time in each round trip, for TIMELY in the control
// plane (thesis 5.5.3). The thesis takes round-trip times from the timestamps' echoes, so their clock has to be fine. RFC 7323
// section 5.4 wants ticks of 1 ms to 1 s: with ticks of 4 us, a clock passes half its range in 2.4 hours, and a peer that
// protects itself against wrapped sequence numbers (PAWS) drops what a flow sends after such a silence. So timestamps count
// milliseconds, and one segment of each round trip is timed by the switch's own clock, in nanoseconds (RFC 6298 section 3).

// The segment that is timed: its acknowledgement number, and when it left; 0 where none is.
struct timed_t {
    bit<32> end;
    bit<32> start;
}

// The peer's clock, and the number that was acknowledged last (TS.Recent and Last.ACK.sent of RFC 7323 section 4.3).
struct peer_clock_t {
    bit<32> recent;
    bit<32> acked;
}

// Protection against wrapped sequence numbers (RFC 7323 section 5). It stands ahead of all other state, which an old
// segment leaves as it is.
// Meets RFC 7323: 3.2-c, 4.3-a, 5.3-a, 5.3-b.
control Paws(inout egress_headers_t hdr, inout egress_metadata_t meta) {
    Register<peer_clock_t, bit<16>>(FLOWS, {0, 0}) ts_recent;

    // Whether the segment is acceptable is decided later, by registers that an old segment must not move. So a segment
    // counts that begins at most its largest size below what was acknowledged. Without that bound, one forged segment
    // in four would set the clock ahead, and the peer's own segments would be old.
    RegisterAction<peer_clock_t, bit<16>, bit<32>>(ts_recent) recent_check = {
        void apply(inout peer_clock_t c, out bit<32> before) {
            before = c.recent;
            if ((int<32>)(hdr.seg.amount - c.recent) > 0 && (int<32>)(hdr.seg.seq - c.acked) <= 0
                    && (int<32>)(hdr.seg.seq - c.acked + 65536) > 0) {
                c.recent = hdr.seg.amount;
            }
        }
    };

    // What is sent acknowledges: a pseudo segment what it covers, the rest what the host had when it sent it.
    RegisterAction<peer_clock_t, bit<16>, bit<32>>(ts_recent) recent_acknowledge = {
        void apply(inout peer_clock_t c, out bit<32> now) {
            now = c.recent;
            if ((int<32>)(hdr.seg.amount - c.acked) > 0) {
                c.acked = hdr.seg.amount;
            }
        }
    };

    RegisterAction<peer_clock_t, bit<16>, bit<32>>(ts_recent) recent_sync = {
        void apply(inout peer_clock_t c, out bit<32> now) {
            now = c.recent;
            if ((int<32>)(hdr.seg.seq - c.acked) > 0) {
                c.acked = hdr.seg.seq;
            }
        }
    };

    action check_recent() { hdr.timestamps.echo = recent_check.execute(hdr.seg.flow); }
    action acknowledge_recent() { hdr.timestamps.echo = recent_acknowledge.execute(hdr.seg.flow); }
    action sync_recent() { hdr.timestamps.echo = recent_sync.execute(hdr.seg.flow); }

    table recent {
        key = {
            hdr.seg.kind: ternary;
            hdr.seg.stamped: ternary;
        }
        actions = { check_recent; acknowledge_recent; sync_recent; NoAction; }
        const entries = {
            (KIND_RX, 1): check_recent();
            (KIND_TX, _): acknowledge_recent();
            (KIND_ACK, _): acknowledge_recent();
            (KIND_MERGE, _): acknowledge_recent();
            (KIND_SYNC, _): sync_recent();
        }
        const default_action = NoAction();
    }

    // Of a segment that came, the field is free: how much newer than the last one it is. Nothing else reads it.
    action measure() {
        hdr.timestamps.echo = hdr.seg.amount - hdr.timestamps.echo;
    }

    table ages {
        key = {
            hdr.seg.kind: exact;
            hdr.seg.stamped: exact;
        }
        actions = { measure; NoAction; }
        const entries = {
            (KIND_RX, 1): measure();
        }
        const default_action = NoAction();
    }

    apply {
        recent.apply();
        ages.apply();
    }
}

control Timely(
    inout egress_headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md)
{
    // Milliseconds, the same for all flows: 32 bits of them are more than the switch's clock of 48 bits can give. The control
    // plane writes it; on a chip, packets of the generator can count it.
    Register<bit<32>, bit<16>>(1, 0) ts_clock;

    RegisterAction<bit<32>, bit<16>, bit<32>>(ts_clock) clock_get = {
        void apply(inout bit<32> value, out bit<32> now) { now = value; }
    };

    action read_clock() {
        hdr.timestamps.value = clock_get.execute(0);
        meta.now = eg_prsr_md.global_tstamp[31:0] | 1;
    }

    Register<timed_t, bit<16>>(FLOWS, {0, 0}) timed;

    RegisterAction<timed_t, bit<16>, bit<32>>(timed) timed_begin = {
        void apply(inout timed_t t) {
            if (t.start == 0) {
                t.end = hdr.seg.seq_end;
                t.start = meta.now;
            }
        }
    };

    RegisterAction2<timed_t, bit<16>, bit<32>, bit<32>>(timed) timed_end = {
        void apply(inout timed_t t, out bit<32> end, out bit<32> start) {
            end = t.end;
            start = t.start;
            if ((int<32>)(hdr.seg.ack - t.end) >= 0) {
                t.start = 0;
            }
        }
    };

    // What is sent twice is not timed (Karn's algorithm).
    // Meets RFC 6298: 3.
    RegisterAction<timed_t, bit<16>, bit<32>>(timed) timed_void = {
        void apply(inout timed_t t) {
            t.start = 0;
        }
    };

    action begin_timing() { timed_begin.execute(hdr.seg.flow); }
    action end_timing() { meta.timed_end = timed_end.execute(hdr.seg.flow, meta.timed_start); }
    action void_timing() { timed_void.execute(hdr.seg.flow); }

    table timing {
        key = {
            hdr.seg.kind: ternary;
            meta.tx: ternary;
            meta.unacked: ternary;
            meta.credits: ternary;
        }
        actions = { begin_timing; end_timing; void_timing; NoAction; }
        const entries = {
            // New data that leaves: it begins at the highest number ever sent.
            (KIND_TX, TX_SEND, _, 0): NoAction();
            (KIND_TX, TX_SEND, 0, _): begin_timing();
            (KIND_TX, TX_SEND, _, _): void_timing();
            (KIND_RX, TX_ACKED, _, _): end_timing();
        }
        const default_action = NoAction();
    }

    action measure() {
        meta.now = meta.now - meta.timed_start;
        meta.timed_end = hdr.seg.ack - meta.timed_end;
    }

    // The last round-trip time, nanoseconds, until the control plane takes it.
    Register<bit<32>, bit<16>>(FLOWS, 0) rtt;

    RegisterAction<bit<32>, bit<16>, bit<32>>(rtt) rtt_set = {
        void apply(inout bit<32> value, out bit<32> now) {
            value = meta.now;
            now = value;
        }
    };

    action sample() { rtt_set.execute(hdr.seg.flow); }

    table samples {
        key = {
            meta.timed_start: ternary;
            meta.timed_end: ternary;
        }
        actions = { sample; NoAction; }
        const entries = {
            (0, _): NoAction();
            (_, 0 &&& 0x80000000): sample();
        }
        const default_action = NoAction();
    }

    action stamp() {
        hdr.timestamps.setValid();
        hdr.timestamps.kinds = 0x0101080a;
        hdr.timestamps.value = hdr.timestamps.value + meta.clock;
        hdr.tcp.data_offset = hdr.tcp.data_offset + 3;
        hdr.ipv4.total_len = hdr.ipv4.total_len + 12;
        meta.tcp_len = meta.tcp_len + 12;
    }

    action stamp_v6() {
        hdr.timestamps.setValid();
        hdr.timestamps.kinds = 0x0101080a;
        hdr.timestamps.value = hdr.timestamps.value + meta.clock;
        hdr.tcp.data_offset = hdr.tcp.data_offset + 3;
        hdr.ipv6.payload_len = hdr.ipv6.payload_len + 12;
        meta.tcp_len = meta.tcp_len + 12;
    }

    table stamps {
        key = {
            hdr.tcp.isValid(): ternary;
            hdr.ipv6.isValid(): ternary;
            meta.options: ternary;
        }
        actions = { stamp; stamp_v6; NoAction; }
        const entries = {
            (true, false, OPTION_TIMESTAMPS &&& OPTION_TIMESTAMPS): stamp();
            (true, true, OPTION_TIMESTAMPS &&& OPTION_TIMESTAMPS): stamp_v6();
        }
        const default_action = NoAction();
    }

    apply {
        read_clock();
        timing.apply();
        measure();
        samples.apply();
        stamps.apply();
    }
}
