// Old value, advance and a flag: two results to compute, and one ALU free.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction3<bit<32>, bit<16>, bit<32>, bit<32>, bit<32>>(state) update = {
        void apply(inout bit<32> v, out bit<32> old, out bit<32> advance, out bit<32> flag) {
            old = v;
            advance = hdr.seg.seq_end - v;
            flag = 0;
            if ((int<32>)(hdr.seg.seq - v) <= 0) {
                v = hdr.seg.seq_end;
                flag = 1;
            }
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow, meta.advance, meta.c);
    }
}

#include "../pipe.p4"
