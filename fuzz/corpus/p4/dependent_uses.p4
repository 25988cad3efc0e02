// The second use of a register depends on the first.
#include "../frame.p4"

control Body(inout headers_t hdr, inout metadata_t meta) {
    Register<bit<32>, bit<16>>(16384, 0) state;
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) update = {
        void apply(inout bit<32> v, out bit<32> old) {
            old = v;
            v = v + 1;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(state) write = {
        void apply(inout bit<32> v) {
            v = meta.next;
        }
    };
    apply {
        meta.next = update.execute(hdr.seg.flow);
        write.execute(hdr.seg.flow);
    }
}

#include "../pipe.p4"
