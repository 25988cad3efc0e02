// A result is used in the next stage.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v, out bit<32> old) {
            old = v;
            v = v + 1;
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow);
        meta.a = meta.next + 1;
    }
}

#include "../pipe.p4"
