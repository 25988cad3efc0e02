// Add, subtract, verify and residual in the parser, and the residual in the deparser.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    apply {
        meta.a = 1;
    }
}

#define OWN_PARSER
parser OwnParser(packet_in pkt, out headers_t hdr, out metadata_t meta, out egress_intrinsic_metadata_t eg_intr_md) {
    bool wrong;
    Checksum() sum;
    Checksum() rest;
    state start {
        pkt.extract(eg_intr_md);
        pkt.extract(hdr.seg);
        sum.add(hdr.seg);
        wrong = sum.verify();
        rest.subtract({ hdr.seg.seq, hdr.seg.ack });
        rest.subtract_all_and_deposit(meta.half);
        transition accept;
    }
}

#define OWN_DEPARSER
control EgressDeparser(
    packet_out pkt, inout headers_t hdr, in metadata_t meta, in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md)
{
    Checksum() sum;
    apply {
        hdr.seg.len = sum.update({ hdr.seg.seq, hdr.seg.ack, meta.half });
        pkt.emit(hdr);
    }
}

#include "../pipe.p4"
