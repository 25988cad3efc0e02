// Order of two fields of 16 bits.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        if (hdr.seg.len < hdr.seg.port) {
            meta.verdict = 1;
        }
    }
}

#include "../pipe.p4"
