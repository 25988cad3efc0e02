// The advance is taken off in the next stage.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction2<bit<32>, bit<16>, bit<32>, bit<32>>(state) update = {
        void apply(inout bit<32> v, out bit<32> old, out bit<32> advance) {
            old = v;
            advance = hdr.seg.seq_end - v;
            if ((int<32>)(hdr.seg.seq - v) <= 0) {
                v = hdr.seg.seq_end;
            }
        }
    };
    Register<bit<32>, bit<16>>(16384, 0) avail;
    RegisterAction<bit<32>, bit<16>, bit<32>>(avail) take = {
        void apply(inout bit<32> v, out bit<32> left) {
            v = v - meta.advance;
            left = v;
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow, meta.advance);
        meta.a = take.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
