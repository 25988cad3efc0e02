// Two widths in one operation.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.a = hdr.seg.seq + hdr.seg.len;
    }
}

#include "../pipe.p4"
