// The index is action data of the same stage.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    action count(bit<16> index) { update.execute(index); }
    table t {
        key = { hdr.seg.kind: exact; }
        actions = { count; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        t.apply();
    }
}

#include "../pipe.p4"
