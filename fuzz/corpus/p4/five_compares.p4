// A fifth comparison.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v) {
            if (v == 1 || v == 2 || (int<32>)(hdr.seg.seq - v) > 0 || (int<32>)(hdr.seg.seq_end - v) > 0 || v == 5) {
                v = 0;
            }
        }
    };
    apply {
        update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
