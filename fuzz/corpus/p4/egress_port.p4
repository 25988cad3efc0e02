// The egress port is input only.
#include "../frame.p4"

#define OWN_EGRESS
control Egress(
    inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md, inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md)
{
    apply {
        eg_intr_md.egress_port = 3;
    }
}

#include "../pipe.p4"
