// A control that applies itself.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Body() again;
    apply {
        again.apply(hdr, meta);
    }
}

#include "../pipe.p4"
