// A condition on 4 bytes and 12 bits.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        if (hdr.seg.seq == 7 && hdr.seg.kind == 1 && meta.bit_a == 1 && meta.bit_b == 1) {
            meta.verdict = 1;
        }
    }
}

#include "../pipe.p4"
