// A shift by a constant.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.a = hdr.seg.seq << 7;
    }
}

#include "../pipe.p4"
