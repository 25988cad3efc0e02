// The same by the default action.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) count = {
        void apply(inout bit<32> v, out bit<32> before) {
            before = v;
            v = v + 1;
        }
    };
    action counted() { meta.a = count.execute(hdr.seg.flow); }
    table t {
        key = { hdr.seg.kind: ternary; }
        actions = { counted; NoAction; }
        const entries = {
            1: NoAction();
        }
        const default_action = counted();
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
