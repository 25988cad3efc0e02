// 32 bits greater than a constant.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        if (hdr.seg.seq > 5) {
            meta.verdict = 1;
        }
    }
}

#include "../pipe.p4"
