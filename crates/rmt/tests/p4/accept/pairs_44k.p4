// The largest register of pairs that the chip's compiler was seen to accept.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<pair_t, bit<16>>(45056, {0, 0}) state;
    RegisterAction<pair_t, bit<16>, bit<32>>(state) update = {
        void apply(inout pair_t v) {
            v.lo = v.lo + 1;
        }
    };
    apply {
        update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
