// The sign of the wrapped difference: serial-number arithmetic.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v) {
            if ((int<32>)(hdr.seg.ack - v) > 0) {
                v = hdr.seg.ack;
            }
        }
    };
    apply {
        update.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
