// One table in two places.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    action yes() { meta.verdict = 1; }
    table t {
        key = { hdr.seg.kind: exact; }
        actions = { yes; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        t.apply();
        t.apply();
    }
}

#include "../pipe.p4"
