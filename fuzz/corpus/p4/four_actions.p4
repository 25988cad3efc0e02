// Four programs of one register, one for each packet.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) add_0 = {
        void apply(inout bit<32> v) {
            v = v + 0;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) add_1 = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) add_2 = {
        void apply(inout bit<32> v) {
            v = v + 2;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) add_3 = {
        void apply(inout bit<32> v) {
            v = v + 3;
        }
    };
    action do_0() { add_0.execute(hdr.seg.flow); }
    action do_1() { add_1.execute(hdr.seg.flow); }
    action do_2() { add_2.execute(hdr.seg.flow); }
    action do_3() { add_3.execute(hdr.seg.flow); }
    table t {
        key = { hdr.seg.kind: exact; }
        actions = { do_0; do_1; do_2; do_3; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
