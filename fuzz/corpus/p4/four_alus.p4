// Four stateful ALUs in a stage.
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
    action do_0() { add_0.execute(hdr.seg.flow); }
    table t_0 {
        actions = { do_0; }
        default_action = do_0();
    }
    action do_1() { add_1.execute(hdr.seg.flow); }
    table t_1 {
        actions = { do_1; }
        default_action = do_1();
    }
    action do_2() { add_2.execute(hdr.seg.flow); }
    table t_2 {
        actions = { do_2; }
        default_action = do_2();
    }
    action do_3() { add_3.execute(hdr.seg.flow); }
    table t_3 {
        actions = { do_3; }
        default_action = do_3();
    }
    apply {
        t_0.apply();
        t_1.apply();
        t_2.apply();
        t_3.apply();
    }
}

#include "../pipe.p4"
