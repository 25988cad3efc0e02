// Bits of a result.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<16>>(state) update = {
        void apply(inout bit<32> v, out bit<16> low) {
            low = (hdr.seg.seq - v)[15:0];
        }
    };
    apply {
        meta.half = update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
