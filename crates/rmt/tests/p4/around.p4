// Everything that top has to carry: ports and queues, drops, what passes egress by, copies, headers that come and go.
#include <core.p4>
#include <t2na.p4>

header seg_h {
    bit<8> kind;
    bit<8> small;
    bit<16> flow;
    bit<32> seq;
    bit<32> word;
}

header copy_h {
    bit<8> kind;
    bit<8> small;
    bit<16> flow;
    bit<32> seq;
    bit<32> word;
    bit<32> more;
}

header extra_h {
    bit<32> a;
    bit<24> b;
}

struct headers_t {
    extra_h extra;
    seg_h seg;
}

struct metadata_t {
    bit<8> session;
    bit<8> kind;
    bit<32> count;
}

parser IngressParser(
    packet_in pkt, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t ig_intr_md)
{
    state start {
        pkt.extract(ig_intr_md);
        pkt.advance(PORT_METADATA_SIZE);
        pkt.extract(hdr.seg);
        transition accept;
    }
}

control Ingress(
    inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md, inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)
{
    action to(bit<9> port) { ig_tm_md.ucast_egress_port = port; }
    action lose() { ig_dprsr_md.drop_ctl = 1; }
    table ports {
        key = { hdr.seg.flow: exact; }
        actions = { to; lose; }
        default_action = to(3);
        size = 64;
    }
    apply {
        ports.apply();
        ig_tm_md.qid = (bit<7>) hdr.seg.small[1:0];
        if (hdr.seg.kind == 5) { ig_tm_md.bypass_egress = 1; }
        // Headers that grow already here.
        if (hdr.seg.kind == 6) { hdr.extra.setValid(); hdr.extra.a = 0x01020304; }
    }
}

control IngressDeparser(
    packet_out pkt, inout headers_t hdr, in metadata_t meta, in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md)
{
    apply { pkt.emit(hdr); }
}

parser EgressParser(
    packet_in pkt, out headers_t hdr, out metadata_t meta, out egress_intrinsic_metadata_t eg_intr_md)
{
    state start {
        pkt.extract(eg_intr_md);
        pkt.extract(hdr.seg);
        transition accept;
    }
}

control Egress(
    inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md, inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md)
{
    Register<bit<32>, bit<16>>(64, 0) counts;
    RegisterAction<bit<32>, bit<16>, bit<32>>(counts) count = {
        void apply(inout bit<32> v, out bit<32> r) { v = v + 1; r = v; }
    };
    action counted() { meta.count = count.execute(hdr.seg.flow); }
    apply {
        counted();
        if (hdr.seg.kind == 1) {
            meta.session = 1;
            eg_dprsr_md.mirror_type = 1;
            eg_dprsr_md.mirror_egress_port = 9;
        } else if (hdr.seg.kind == 2) {
            eg_dprsr_md.drop_ctl = 1;
        } else if (hdr.seg.kind == 3) {
            hdr.extra.setValid();
            hdr.extra.a = hdr.seg.word;
            hdr.extra.b = 0xabcdef;
        } else if (hdr.seg.kind == 4) {
            hdr.seg.setInvalid();
        }
    }
}

control EgressDeparser(
    packet_out pkt, inout headers_t hdr, in metadata_t meta, in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md)
{
    Mirror() mirror;
    apply {
        if (eg_dprsr_md.mirror_type == 1) {
            mirror.emit<copy_h>(meta.session, { meta.kind, hdr.seg.small, hdr.seg.flow, hdr.seg.seq, meta.count, hdr.seg.word });
        }
        pkt.emit(hdr);
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
