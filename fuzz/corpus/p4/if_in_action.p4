// A decision within an action.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    action decide() {
        if (hdr.seg.kind == 1) {
            meta.a = 1;
        }
    }
    table t {
        actions = { decide; }
        default_action = decide();
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
