// A twelfth word.
#include "../frame.p4"

header own_h {
    bit<8> kind;
    bit<32> f0;
    bit<32> f1;
    bit<32> f2;
    bit<32> f3;
    bit<32> f4;
    bit<32> f5;
    bit<32> f6;
    bit<32> f7;
    bit<32> f8;
    bit<32> f9;
    bit<32> f10;
    bit<32> f11;
}

control Body(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}

#define OWN_EGRESS
control Egress(
    inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md, inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md)
{
    apply {
        meta.session = 1;
        eg_dprsr_md.mirror_type = 1;
        eg_dprsr_md.mirror_egress_port = 9;
    }
}

#define OWN_DEPARSER
control EgressDeparser(
    packet_out pkt, inout headers_t hdr, in metadata_t meta, in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md)
{
    Mirror() mirror;
    apply {
        if (eg_dprsr_md.mirror_type == 1) {
            mirror.emit<own_h>(meta.session, {
                meta.kind, meta.next, meta.advance, meta.a, meta.b, meta.c, meta.d, meta.e, hdr.seg.seq,
                hdr.seg.seq_end, hdr.seg.ack, hdr.seg.word, hdr.seg.seq });
        }
        pkt.emit(hdr);
    }
}

#include "../pipe.p4"
