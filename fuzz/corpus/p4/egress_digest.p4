// Egress has no digest.
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
    Digest<mirror_h>() digest;
    apply {
        digest.pack({ meta.kind });
        pkt.emit(hdr);
    }
}

#include "../pipe.p4"
