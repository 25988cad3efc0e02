// Extension: the sequencer of a shared log (thesis 5.5.2). Records of many connections get their places in one log in the
// order in which they come. A connection's records have places in their own order: a segment behind a gap reserves room for
// the gap as well, which the host fills when the missing segment comes (docs/SHARED-LOG.md).
//
// Records have one size, a power of two, and room is given for whole ones: so a client need not care how TCP cuts them.

control SharedLog(inout egress_headers_t hdr, inout egress_metadata_t meta) {
    // `origin` turns sequence numbers into bytes since the flow's first record; `ceiling` is that, and a record less a byte.
    action appends(bit<16> log, bit<32> origin, bit<32> ceiling, bit<32> mask) {
        meta.log_known = 1;
        meta.log = log;
        meta.log_mask = mask;
        hdr.log.offset = hdr.seg.seq + origin;
        meta.log_end = hdr.seg.seq_end + ceiling;
    }

    table logs {
        key = { hdr.seg.flow: exact; }
        actions = { appends; NoAction; }
        default_action = NoAction();
        size = FLOWS;
    }

    action whole_records() {
        meta.log_end = meta.log_end & meta.log_mask;
    }

    // What has a place of each flow's stream. Only what is delivered gets one: a segment that is dropped comes again.
    Register<bit<32>, bit<16>>(FLOWS, 0) log_reserved;

    RegisterAction2<bit<32>, bit<16>, bit<32>, bit<32>>(log_reserved) reserve = {
        void apply(inout bit<32> reserved, out bit<32> before, out bit<32> after) {
            before = reserved;
            if ((int<32>)(meta.log_end - reserved) > 0) {
                reserved = meta.log_end;
            }
            after = reserved;
        }
    };

    action do_reserve() { hdr.log.before = reserve.execute(hdr.seg.flow, hdr.log.after); }

    table payload {
        key = {
            meta.log_known: exact;
            hdr.dma.isValid(): exact;
            hdr.dma.op: exact;
            hdr.dma.length: ternary;
        }
        actions = { do_reserve; NoAction; }
        const entries = {
            (1, true, DMA_RX, 0): NoAction();
            (1, true, DMA_RX, _): do_reserve();
        }
        const default_action = NoAction();
    }

    action measure() {
        meta.log_new = hdr.log.after - hdr.log.before;
        meta.log_into = hdr.log.offset - hdr.log.before;
    }

    // The end of each log: the sequencer itself.
    Register<bit<32>, bit<16>>(LOGS, 0) log_tail;

    RegisterAction<bit<32>, bit<16>, bit<32>>(log_tail) append = {
        void apply(inout bit<32> tail, out bit<32> place) {
            place = tail;
            tail = tail + meta.log_new;
        }
    };

    action do_append() { hdr.log.place = append.execute(meta.log); }

    action to_log() {
        hdr.log.setValid();
        hdr.dma.address = hdr.log.place + meta.log_into;
    }

    action to_host() {
        hdr.log.setValid();
        hdr.dma.flags = hdr.dma.flags | DMA_LOG_FILL;
    }

    table where {
        key = { meta.log_into: ternary; }
        actions = { to_log; to_host; }
        const entries = {
            0x80000000 &&& 0x80000000: to_host();
        }
        const default_action = to_log();
    }

    apply {
        logs.apply();
        whole_records();
        switch (payload.apply().action_run) {
            do_reserve: {
                measure();
                do_append();
                where.apply();
            }
        }
    }
}
