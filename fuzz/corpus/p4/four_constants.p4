// Four large constants; small ones cost nothing.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) add_0 = {
        void apply(inout bit<32> v) {
            if (v == 1000) {
                v = 1001;
            }
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) add_1 = {
        void apply(inout bit<32> v) {
            if (v == 1002) {
                v = 1003;
            }
        }
    };
    action do_0() { add_0.execute(hdr.seg.flow); }
    action do_1() { add_1.execute(hdr.seg.flow); }
    table t {
        key = { hdr.seg.kind: exact; }
        actions = { do_0; do_1; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
