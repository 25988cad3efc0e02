// Two uses of which a packet makes one.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) more = {
        void apply(inout bit<32> v) {
            v = v + 2;
        }
    };
    apply {
        if (hdr.seg.kind == 1) {
            update.execute(hdr.seg.flow);
        } else {
            more.execute(hdr.seg.flow);
        }
    }
}

#include "../pipe.p4"
