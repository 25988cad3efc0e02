// A shift by a variable.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.a = hdr.seg.seq << hdr.seg.small;
    }
}

#include "../pipe.p4"
