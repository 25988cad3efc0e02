// A large register of 32 bits.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<32>>(90112, 0) state;
    RegisterAction<bit<32>, bit<32>, bit<32>>(state) update = {
        void apply(inout bit<32> v) {
            v = v + 1;
        }
    };
    apply {
        update.execute(hdr.seg.seq);
    }
}

#include "../pipe.p4"
