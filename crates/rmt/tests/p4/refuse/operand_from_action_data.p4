// An operand can't come from action data of the same stage.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v) {
            v = v + meta.a;
        }
    };
    action add(bit<32> amount) {
        meta.a = amount;
        update.execute(hdr.seg.flow);
    }
    table t {
        key = { hdr.seg.kind: exact; }
        actions = { add; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
