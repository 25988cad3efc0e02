// 16 bits less than a constant.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        if (hdr.seg.len < 1460) {
            meta.verdict = 1;
        }
    }
}

#include "../pipe.p4"
