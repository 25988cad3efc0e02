// Extension: selective acknowledgement with one block (RFC 2018; thesis 5.5.4.3). An acknowledgement has the
// out-of-order interval, read in the same pass as rx_next, so that both belong together whatever came meanwhile.

// Meets RFC 2018: 4-a, 4-b, 4-c, 4-d.
control Sack(inout egress_headers_t hdr, inout egress_metadata_t meta) {
    action block() {
        hdr.sack.setValid();
        hdr.sack.kinds = 0x0101050a;
        hdr.sack.left = meta.rx_next + meta.ooo_head;
        hdr.sack.right = meta.rx_next + meta.ooo_tail;
        hdr.tcp.data_offset = hdr.tcp.data_offset + 3;
        hdr.ipv4.total_len = hdr.ipv4.total_len + 12;
        meta.tcp_len = meta.tcp_len + 12;
    }

    action block_v6() {
        hdr.sack.setValid();
        hdr.sack.kinds = 0x0101050a;
        hdr.sack.left = meta.rx_next + meta.ooo_head;
        hdr.sack.right = meta.rx_next + meta.ooo_tail;
        hdr.tcp.data_offset = hdr.tcp.data_offset + 3;
        hdr.ipv6.payload_len = hdr.ipv6.payload_len + 12;
        meta.tcp_len = meta.tcp_len + 12;
    }

    // No block where nothing is out of order, or only what a merge on its way will acknowledge.
    table blocks {
        key = {
            hdr.seg.kind: ternary;
            hdr.ipv6.isValid(): ternary;
            meta.options: ternary;
            meta.ooo_head: ternary;
            meta.ooo_tail: ternary;
        }
        actions = { block; block_v6; NoAction; }
        const entries = {
            (KIND_ACK, _, _, 0, _): NoAction();
            (KIND_ACK, _, _, _, 0): NoAction();
            (KIND_ACK, false, OPTION_SACK &&& OPTION_SACK, _, _): block();
            (KIND_ACK, true, OPTION_SACK &&& OPTION_SACK, _, _): block_v6();
        }
        const default_action = NoAction();
    }

    apply {
        blocks.apply();
    }
}
