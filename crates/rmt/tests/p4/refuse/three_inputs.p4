// next and avail can't share a pair: three words of the packet.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<pair_t, bit<16>>(16384, {0, 0}) state;
    RegisterAction<pair_t, bit<16>, bit<32>>(state) update = {
        void apply(inout pair_t v, out bit<32> old) {
            old = v.lo;
            if ((int<32>)(hdr.seg.seq - v.lo) <= 0) {
                v.lo = hdr.seg.seq_end;
            }
            v.hi = v.hi - hdr.seg.word;
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
