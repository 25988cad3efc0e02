// Accepted, but wrong when sequence numbers wrap: a warning.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v) {
            if (v <= hdr.seg.ack) {
                v = hdr.seg.ack;
            }
        }
    };
    apply {
        update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
