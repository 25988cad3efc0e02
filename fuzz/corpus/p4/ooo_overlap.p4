// Overlap and merge in serial arithmetic: four comparisons.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<pair_t, bit<16>>(16384, {0, 0}) state;
    RegisterAction<pair_t, bit<16>, bit<32>>(state) update = {
        void apply(inout pair_t v) {
            if ((int<32>)(hdr.seg.seq - v.hi) <= 0 && (int<32>)(hdr.seg.seq_end - v.lo) >= 0
                    && (int<32>)(hdr.seg.seq_end - v.hi) > 0) {
                v.hi = hdr.seg.seq_end;
            }
            if ((int<32>)(hdr.seg.seq_end - v.lo) >= 0 && (int<32>)(hdr.seg.seq - v.lo) < 0) {
                v.lo = hdr.seg.seq;
            }
        }
    };
    apply {
        update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
