// An entry of three fields.
#include "../frame.p4"

struct triple_t {
    bit<32> a;
    bit<32> b;
    bit<32> c;
}

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<triple_t, bit<16>>(1024) state;
    apply {
    }
}

#include "../pipe.p4"
