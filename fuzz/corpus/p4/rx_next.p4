// In order or partly new, in one operation: old value and advance come out.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction2<bit<32>, bit<16>, bit<32>, bit<32>>(state) update = {
        void apply(inout bit<32> v, out bit<32> old, out bit<32> advance) {
            old = v;
            advance = hdr.seg.seq_end - v;
            if ((int<32>)(hdr.seg.seq - v) <= 0 && (int<32>)(hdr.seg.seq_end - v) > 0) {
                v = hdr.seg.seq_end;
            }
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow, meta.advance);
    }
}

#include "../pipe.p4"
