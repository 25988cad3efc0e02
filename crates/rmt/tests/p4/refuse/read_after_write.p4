// An action that needs its own result.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    action both() {
        meta.a = hdr.seg.seq + 1;
        meta.b = meta.a + 1;
    }
    table t {
        actions = { both; }
        default_action = both();
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
