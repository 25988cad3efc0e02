// Five units in the parser.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    apply {
        meta.a = 1;
    }
}

#define OWN_PARSER
parser OwnParser(packet_in pkt, out headers_t hdr, out metadata_t meta, out egress_intrinsic_metadata_t eg_intr_md) {
    bool valid;
    Checksum() sum_0;
    Checksum() sum_1;
    Checksum() sum_2;
    Checksum() sum_3;
    Checksum() sum_4;
    state start {
        pkt.extract(eg_intr_md);
        pkt.extract(hdr.seg);
        sum_0.add(hdr.seg);
        sum_1.add(hdr.seg);
        sum_2.add(hdr.seg);
        sum_3.add(hdr.seg);
        sum_4.add(hdr.seg);
        transition accept;
    }
}

#include "../pipe.p4"
