// next and the right edge of the window with the check, in one operation: prefer the edge.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<pair_t, bit<16>>(16384, {0, 0}) state;
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(state) update = {
        void apply(inout pair_t v, out bit<32> next, out bit<32> edge) {
            next = v.lo;
            edge = v.hi;
            if ((int<32>)(hdr.seg.seq - v.lo) <= 0 && (int<32>)(hdr.seg.seq_end - v.lo) > 0
                    && (int<32>)(hdr.seg.seq_end - v.hi) <= 0) {
                v.lo = hdr.seg.seq_end;
            }
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow, meta.advance);
    }
}

#include "../pipe.p4"
