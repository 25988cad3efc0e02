// The end of the segment must be computed in an earlier stage.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v, out bit<32> old) {
            old = v;
            if ((int<32>)(hdr.seg.seq - v) <= 0) {
                v = hdr.seg.seq + hdr.seg.word;
            }
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
