// Extension: delayed acknowledgements (RFC 1122 4.2.3.2, RFC 5681 section 4.2; thesis 5.5.3). Of segments in order, every
// ACK_EVERY-th is acknowledged; at once what is out of order, closes a gap, carries an ECN mark (RFC 8257 section 3.2)
// or was merged from several. What this end transmits acknowledges, too. The timer is the host's (DMA_ACK_DELAYED).

#ifndef ACK_EVERY
#define ACK_EVERY 2
#endif

// Meets RFC 9293: SHLD-18, MUST-40, SHLD-19.
// Meets RFC 5681: 4.2-a.
control DelayedAcks(
    inout egress_headers_t hdr,
    inout egress_metadata_t meta,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md)
{
    // Segments that wait for their acknowledgement.
    Register<bit<8>, bit<16>>(FLOWS, 0) unacknowledged;

    RegisterAction<bit<8>, bit<16>, bit<8>>(unacknowledged) count_one = {
        void apply(inout bit<8> count, out bit<8> now) {
            if (count >= ACK_EVERY - 1) {
                count = 0;
            } else {
                count = count + 1;
            }
            now = count;
        }
    };

    RegisterAction<bit<8>, bit<16>, bit<8>>(unacknowledged) count_none = {
        void apply(inout bit<8> count) {
            count = 0;
        }
    };

    action wait() { meta.waiting = count_one.execute(hdr.seg.flow); }
    action acknowledged() { count_none.execute(hdr.seg.flow); }

    table arrivals {
        key = {
            hdr.seg.kind: ternary;
            meta.rx: ternary;
            meta.pseudo_kind: ternary;
            meta.tail_before: ternary;
            hdr.seg.length: ternary;
            hdr.seg.flags: ternary;
            meta.tx: ternary;
            meta.credits: ternary;
        }
        actions = { wait; acknowledged; NoAction; }
        const entries = {
            (KIND_RX, RX_IN_ORDER, KIND_ACK, 0, 0 &&& 0xf800, 0 &&& TCP_ECE, _, _): wait();
            (KIND_RX, RX_NONE, _, _, _, _, _, _): NoAction();
            (KIND_RX, RX_CHALLENGE, _, _, _, _, _, _): NoAction();
            (KIND_RX, _, _, _, _, _, _, _): acknowledged();
            (KIND_TX, _, _, _, _, _, TX_SEND, 0): NoAction();
            (KIND_TX, _, _, _, _, _, TX_SEND, _): acknowledged();
            (KIND_SYNC, _, _, _, _, _, _, _): acknowledged();
        }
        const default_action = NoAction();
    }

    action not_yet() {
        eg_dprsr_md.mirror_type = 0;
        hdr.dma.flags = hdr.dma.flags | DMA_ACK_DELAYED;
    }

    table mirrors {
        key = { meta.waiting: ternary; }
        actions = { not_yet; NoAction; }
        const entries = {
            0: NoAction();
        }
        const default_action = not_yet();
    }

    apply {
        arrivals.apply();
        mirrors.apply();
    }
}
