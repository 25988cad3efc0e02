#ifndef OWN_INGRESS
control Ingress(
    inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md, inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)
{
    apply {
        ig_tm_md.ucast_egress_port = 1;
    }
}
#endif

#ifndef OWN_INGRESS_DEPARSER
control IngressDeparser(
    packet_out pkt, inout headers_t hdr, in metadata_t meta, in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md)
{
    apply {
        pkt.emit(hdr);
    }
}
#endif

#ifndef OWN_EGRESS
control Egress(
    inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md, inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md)
{
    Body() body;
    apply {
        body.apply(hdr, meta);
    }
}
#endif

#ifndef OWN_DEPARSER
control EgressDeparser(
    packet_out pkt, inout headers_t hdr, in metadata_t meta, in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md)
{
    apply {
        pkt.emit(hdr);
    }
}
#endif

#ifndef OWN_PARSER
#define EGRESS_PARSER EgressParser
#else
#define EGRESS_PARSER OwnParser
#endif

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EGRESS_PARSER(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
