// One register in ingress and egress.
#include "../frame.p4"

Register<bit<32>, bit<16>>(1024, 0) state;

control Body(inout headers_t hdr, inout metadata_t meta) {
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    
    apply {
        update.execute(hdr.seg.flow);
    }
}

#define OWN_INGRESS
control Ingress(
    inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md, inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)
{
    Body() body;
    apply {
        body.apply(hdr, meta);
        ig_tm_md.ucast_egress_port = 1;
    }
}

#include "../pipe.p4"
