// The verdict of a checksum, which begins with false.
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
    state start {
        pkt.extract(eg_intr_md);
        pkt.extract(hdr.seg);
        wrong = false;
        sum.add(hdr.seg);
        wrong = sum.verify();
        transition accept;
    }
}

#include "../pipe.p4"
