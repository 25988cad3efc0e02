// A value into a field of another width.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.half = hdr.seg.seq;
    }
}

#include "../pipe.p4"
