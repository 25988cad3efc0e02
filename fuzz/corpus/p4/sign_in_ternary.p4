// Subtract, then match the sign bit in a ternary table.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    action yes() { meta.verdict = 1; }
    action no() { meta.verdict = 0; }
    table t {
        key = { meta.a: ternary; }
        actions = { yes; no; }
        const entries = {
            0x80000000 &&& 0x80000000: yes();
        }
        const default_action = no();
    }
    apply {
        meta.a = hdr.seg.seq - hdr.seg.ack;
        t.apply();
    }
}

#include "../pipe.p4"
