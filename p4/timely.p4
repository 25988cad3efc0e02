// Extension: timestamps (RFC 7323) on all that is sent, and an average of the round-trip times that their echoes tell
// for each flow, for TIMELY in the control plane (thesis 5.5.3). A timestamp counts 2^TS_SHIFT ns; the control plane
// gives each flow's clock its offset. Half the range is 2.4 hours by default: keepalives come before (RFC 1122 4.2.3.6),
// so a peer that protects itself against wrapped sequence numbers never takes an idle flow's clock for an old one.

#ifndef TS_SHIFT
#define TS_SHIFT 12
#endif

control Timely(
    inout egress_headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md)
{
    // The peer's clock, of the last segment in order (RFC 7323 4.3).
    Register<bit<32>, bit<16>>(FLOWS, 0) ts_recent;

    RegisterAction<bit<32>, bit<16>, bit<32>>(ts_recent) recent_set = {
        void apply(inout bit<32> value, out bit<32> now) {
            if ((int<32>)(hdr.seg.amount - value) > 0) {
                value = hdr.seg.amount;
            }
            now = value;
        }
    };

    RegisterAction<bit<32>, bit<16>, bit<32>>(ts_recent) recent_get = {
        void apply(inout bit<32> value, out bit<32> now) { now = value; }
    };

    action set_recent() { recent_set.execute(hdr.seg.flow); }
    action get_recent() { hdr.timestamps.echo = recent_get.execute(hdr.seg.flow); }

    table recent {
        key = {
            hdr.seg.kind: ternary;
            hdr.seg.stamped: ternary;
            meta.rx: ternary;
            meta.from_next: ternary;
        }
        actions = { set_recent; get_recent; NoAction; }
        const entries = {
            (KIND_RX, 1, RX_IN_ORDER, _): set_recent();
            (KIND_RX, 1, RX_NONE, 0): set_recent();
            (KIND_RX, _, _, _): NoAction();
            (KIND_GRANT, _, _, _): NoAction();
        }
        const default_action = get_recent();
    }

    action read_clock() { meta.clock = meta.clock + eg_prsr_md.global_tstamp[TS_SHIFT + 31:TS_SHIFT]; }

    action measure() { meta.rtt = meta.clock - hdr.seg.grant; }

    action to_ns() { meta.rtt = meta.rtt << TS_SHIFT; }

    // The average, in nanoseconds.
    Lpf<bit<32>, bit<16>>(FLOWS) rtt_average;

    action average() { meta.rtt = rtt_average.execute(meta.rtt, hdr.seg.flow); }

    table samples {
        key = {
            hdr.seg.kind: exact;
            hdr.seg.stamped: exact;
            meta.tx: exact;
        }
        actions = { average; NoAction; }
        const entries = {
            (KIND_RX, 1, TX_ACKED): average();
        }
        const default_action = NoAction();
    }

    action stamp() {
        hdr.timestamps.setValid();
        hdr.timestamps.kinds = 0x0101080a;
        hdr.timestamps.value = meta.clock;
        hdr.tcp.data_offset = hdr.tcp.data_offset + 3;
        hdr.ipv4.total_len = hdr.ipv4.total_len + 12;
        meta.tcp_len = meta.tcp_len + 12;
    }

    table stamps {
        key = {
            hdr.tcp.isValid(): ternary;
            meta.options: ternary;
        }
        actions = { stamp; NoAction; }
        const entries = {
            (true, OPTION_TIMESTAMPS &&& OPTION_TIMESTAMPS): stamp();
        }
        const default_action = NoAction();
    }

    apply {
        recent.apply();
        read_clock();
        measure();
        to_ns();
        samples.apply();
        stamps.apply();
    }
}
