// A table that is spread over stages.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    action yes(bit<32> data) { meta.a = data; }
    table t {
        key = { hdr.seg.seq: exact; hdr.seg.ack: exact; }
        actions = { yes; NoAction; }
        default_action = NoAction();
        size = 300000;
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
