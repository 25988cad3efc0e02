// Old value, new value and predicate.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction3<bit<32>, bit<16>, bit<32>, bit<32>, bit<16>>(state) update = {
        void apply(inout bit<32> v, out bit<32> old, out bit<32> advance, out bit<16> which) {
            old = v;
            which = this.predicate<bit<16>>((int<32>)(hdr.seg.seq - v) <= 0);
            if ((int<32>)(hdr.seg.seq - v) <= 0) {
                v = hdr.seg.seq_end;
            }
            advance = v;
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow, meta.advance, meta.predicate);
    }
}

#include "../pipe.p4"
