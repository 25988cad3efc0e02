// A constant that does not fit.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {

    apply {
        meta.flag = 256;
    }
}

#include "../pipe.p4"
