// Empty can't be head == tail: two words of memory in one comparison.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<pair_t, bit<16>>(16384, {0, 0}) state;
    RegisterAction<pair_t, bit<16>, bit<32>>(state) update = {
        void apply(inout pair_t v) {
            if (v.lo == v.hi) {
                v.hi = hdr.seg.seq_end;
            }
        }
    };
    apply {
        update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
