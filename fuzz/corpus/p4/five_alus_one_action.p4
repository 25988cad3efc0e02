// Five in one action can't be in one stage.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(1024, 0) state_0;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state_0) add_0 = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    Register<bit<32>, bit<16>>(1024, 0) state_1;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state_1) add_1 = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    Register<bit<32>, bit<16>>(1024, 0) state_2;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state_2) add_2 = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    Register<bit<32>, bit<16>>(1024, 0) state_3;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state_3) add_3 = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    Register<bit<32>, bit<16>>(1024, 0) state_4;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state_4) add_4 = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    action all() {
        add_0.execute(hdr.seg.flow);
        add_1.execute(hdr.seg.flow);
        add_2.execute(hdr.seg.flow);
        add_3.execute(hdr.seg.flow);
        add_4.execute(hdr.seg.flow);
    }
    table t {
        actions = { all; }
        default_action = all();
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
