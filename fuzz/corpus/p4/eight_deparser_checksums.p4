// Eight units in the deparser.
#include "../frame.p4"

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
    Checksum() sum_0;
    Checksum() sum_1;
    Checksum() sum_2;
    Checksum() sum_3;
    Checksum() sum_4;
    Checksum() sum_5;
    Checksum() sum_6;
    Checksum() sum_7;
    apply {
        hdr.seg.len = sum_0.update({ hdr.seg.seq });
        hdr.seg.len = sum_1.update({ hdr.seg.seq });
        hdr.seg.len = sum_2.update({ hdr.seg.seq });
        hdr.seg.len = sum_3.update({ hdr.seg.seq });
        hdr.seg.len = sum_4.update({ hdr.seg.seq });
        hdr.seg.len = sum_5.update({ hdr.seg.seq });
        hdr.seg.len = sum_6.update({ hdr.seg.seq });
        hdr.seg.len = sum_7.update({ hdr.seg.seq });
        pkt.emit(hdr);
    }
}

#include "../pipe.p4"
