// More bits than a gateway sees.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        if (hdr.seg.seq == 7 && hdr.seg.len == 1) {
            meta.verdict = 1;
        }
    }
}

#include "../pipe.p4"
