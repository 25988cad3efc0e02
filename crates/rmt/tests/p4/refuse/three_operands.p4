// Three operands.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.a = hdr.seg.seq + hdr.seg.ack + hdr.seg.word;
    }
}

#include "../pipe.p4"
