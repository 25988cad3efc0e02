// Equality on 32 bits.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        if (hdr.seg.seq == 0x12345678) {
            meta.verdict = 1;
        }
    }
}

#include "../pipe.p4"
