// Both ends move, but not below zero.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<pair_t, bit<16>>(16384, {0, 0}) state;
    RegisterAction2<pair_t, bit<16>, bit<32>, bit<32>>(state) update = {
        void apply(inout pair_t v, out bit<32> head, out bit<32> tail) {
            v.lo = v.lo |-| meta.a;
            v.hi = v.hi |-| meta.a;
            head = v.lo;
            tail = v.hi;
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow, meta.advance);
    }
}

#include "../pipe.p4"
