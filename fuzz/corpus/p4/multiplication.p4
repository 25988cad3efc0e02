// A product.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.a = hdr.seg.seq * hdr.seg.ack;
    }
}

#include "../pipe.p4"
