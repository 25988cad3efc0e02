// Saturating add and subtract.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<pair_t, bit<16>>(16384, {0, 0}) state;
    RegisterAction<pair_t, bit<16>, bit<32>>(state) update = {
        void apply(inout pair_t v) {
            v.lo = v.lo |+| hdr.seg.seq;
            v.hi = v.hi |-| hdr.seg.seq;
        }
    };
    apply {
        update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
