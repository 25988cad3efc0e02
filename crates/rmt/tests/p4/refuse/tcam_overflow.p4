// More ternary entries than there is TCAM.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    action yes() { meta.verdict = 1; }
    table t {
        key = { hdr.seg.seq: ternary; hdr.seg.ack: ternary; }
        actions = { yes; NoAction; }
        default_action = NoAction();
        size = 200000;
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
